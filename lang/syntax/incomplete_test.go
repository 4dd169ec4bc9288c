package syntax

import "testing"

func TestIncomplete(t *testing.T) {
	for src, want := range map[string]bool{
		"":                           false,
		"qp.state == RTR":            false,
		"nvme:* / latency > 1ms /":   false,
		"nvme:*":                     false,
		"begin {":                    true,
		"begin { printf(\"}\")":      true,
		"begin { exit() }":           false,
		"latency >":                  true,
		"nvme:setup_cmd,":            true,
		"opcode in [read,":           true,
		"@x = `a":                    true,
		"@x = \"a":                   false,
		"/* why":                     true,
		"/* why */ begin {}":         false,
		"begin { @x++ // }":          true,
		"begin { @x-- }":             false,
		"}":                          false,
		"qp.state == RTR ? 1":        false,
		"nvme:* { @[(ctrl, nsid)] =": true,
	} {
		if got := Incomplete(src); got != want {
			t.Errorf("Incomplete(%q) = %v", src, got)
		}
	}
}
