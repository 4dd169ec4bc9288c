package main

import "testing"

func TestMirrorFromTargets(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"debian", "|cloud tools|https://vendor.example/apt\n" +
			"Debian|Debian-Security|http://security.example/debian-security\n" +
			"Debian|Debian|http://mirror.example/debian/\n", "http://mirror.example/debian"},
		{"ubuntu", "Ubuntu|Ubuntu|http://archive.example/ubuntu\n", ""},
		{"installation disk", "Debian|Debian|cdrom:[disk]\n", ""},
		{"lists removed", "", ""},
	}
	for _, tt := range tests {
		if got := mirrorFromTargets(tt.text); got != tt.want {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestMirrorFromURIs(t *testing.T) {
	text := "'https://vendor.example/apt/dists/tools/main/binary-amd64/Packages.xz' vendor 0 \n" +
		"'http://m.example/debian-security/dists/bookworm-security/main/binary-amd64/Packages.xz' s 0 \n" +
		"'http://m.example/debian/dists/bookworm-updates/main/binary-amd64/Packages.xz' u 0 \n" +
		"'http://m.example/debian/dists/bookworm/InRelease' r 0 \n" +
		"'http://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' p 0 \n"
	if got, want := mirrorFromURIs(text, "bookworm"), "http://m.example/debian"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := mirrorFromURIs(text, "trixie"); got != "" {
		t.Errorf("a suite that is not configured: got %q", got)
	}
}

func TestMirrorFromDebootstrap(t *testing.T) {
	tests := []struct{ script, want string }{
		{"CACHE=\"\"\nDEF_MIRROR=\"http://m.example/debian\"\nMIRRORS=\"$DEF_MIRROR\"\n", "http://m.example/debian"},
		{"DEF_MIRROR=http://m.example/debian/\n", "http://m.example/debian"},
		{"DEF_MIRROR=\"http://archive.example/ubuntu\"\n", ""},
		{"", ""},
	}
	for _, tt := range tests {
		if got := mirrorFromDebootstrap(tt.script); got != tt.want {
			t.Errorf("%q: got %q, want %q", tt.script, got, tt.want)
		}
	}
}

func TestDebianCodename(t *testing.T) {
	debian := "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n"
	if got := debianCodename(debian); got != "bookworm" {
		t.Errorf("Debian: got %q", got)
	}
	ubuntu := "NAME=\"Ubuntu\"\nID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n"
	if got := debianCodename(ubuntu); got != "" {
		t.Errorf("Ubuntu taken for Debian: got %q", got)
	}
}

func TestMirrorOverride(t *testing.T) {
	got, err := debianMirror(t.Context(), func(string) string { return "http://m.example/debian/" })
	if err != nil || got != "http://m.example/debian" {
		t.Errorf("got %q, %v", got, err)
	}
}
