package main

import (
	"bufio"
	"context"
	"errors"
	"os"
	"regexp"
	"strings"
)

// debianMirror returns the URL of a Debian mirror; none is hard-coded. It comes from the user's setting, from this machine's own apt if it
// runs Debian, or from debootstrap's default.
func debianMirror(ctx context.Context, getenv func(string) string) (string, error) {
	if m := getenv("VMTEST_MIRROR"); m != "" {
		return strings.TrimSuffix(m, "/"), nil
	}
	if m := mirrorFromTargets(output(ctx, "apt-get", "indextargets", "--format",
		"$(ORIGIN)|$(LABEL)|$(SITE)")); m != "" {
		return m, nil
	}
	// Images often come without apt's lists: then only the configured addresses are known, and the system shows whether they are Debian's.
	if codename := debianCodename(readText("/etc/os-release")); codename != "" {
		if m := mirrorFromURIs(output(ctx, "apt-get", "update", "--print-uris"), codename); m != "" {
			return m, nil
		}
	}
	if m := mirrorFromDebootstrap(readText("/usr/sbin/debootstrap")); m != "" {
		return m, nil
	}
	return "", errors.New("no Debian mirror known: set VMTEST_MIRROR to the URL of one, or install debootstrap")
}

// mirrorFromTargets reads lines "origin|label|site" of apt's downloaded indexes. The label distinguishes the archive from security updates.
func mirrorFromTargets(text string) string {
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) == 3 && f[0] == "Debian" && f[1] == "Debian" && isHTTP(f[2]) {
			return strings.TrimSuffix(f[2], "/")
		}
	}
	return ""
}

// mirrorFromURIs reads apt's list of files that an update would download and
// returns the archive that holds the suite called codename.
func mirrorFromURIs(text, codename string) string {
	for line := range strings.Lines(text) {
		uri, _, _ := strings.Cut(strings.TrimPrefix(line, "'"), "'")
		base, rest, ok := strings.Cut(uri, "/dists/")
		if ok && isHTTP(base) && strings.HasPrefix(rest, codename+"/main/") {
			return base
		}
	}
	return ""
}

func mirrorFromDebootstrap(script string) string {
	m := regexp.MustCompile(`(?m)^DEF_MIRROR="?([^"\s]+)"?`).FindStringSubmatch(script)
	if m == nil || !isHTTP(m[1]) || !strings.HasSuffix(strings.TrimSuffix(m[1], "/"), "/debian") {
		return "" // some distributions patch in their own archive
	}
	return strings.TrimSuffix(m[1], "/")
}

// debianCodename returns the suite of a machine that runs Debian, otherwise "".
func debianCodename(osRelease string) string {
	values := map[string]string{}
	s := bufio.NewScanner(strings.NewReader(osRelease))
	for s.Scan() {
		if key, value, ok := strings.Cut(s.Text(), "="); ok {
			values[key] = strings.Trim(value, `"`)
		}
	}
	if values["ID"] != "debian" {
		return ""
	}
	return values["VERSION_CODENAME"]
}

func isHTTP(url string) bool {
	return strings.HasPrefix(url, "http://") || strings.HasPrefix(url, "https://")
}

// readText returns "" for a missing file: its callers only look for hints.
func readText(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}
