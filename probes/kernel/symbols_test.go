//go:build linux

package kernel

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestLoadedModule(t *testing.T) {
	for message, want := range map[string]string{
		"add@/module/nvme\x00ACTION=add\x00DEVPATH=/module/nvme\x00": "nvme",
		"add@/module/nvme":                     "nvme",
		"remove@/module/nvme\x00ACTION=remove": "",
		"add@/module/nvme/holders\x00":         "",
		"add@/devices/virtual/nvme\x00":        "",
		"":                                     "",
	} {
		if got := LoadedModule([]byte(message)); got != want {
			t.Errorf("%q: module %q, want %q", message, got, want)
		}
	}
}

// Only what the module alone has is its own.
func TestFunctionsOf(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kallsyms")
	symbols := `ffffffff81000000 T vfs_read
ffffffffc0000000 t nvme_timeout	[nvme]
ffffffffc0000010 t nvme_other	[nvme]
ffffffffc0100000 t nvme_tcp_timeout	[nvme_tcp]
ffffffffc0000020 t twice	[nvme]
ffffffffc0200000 t twice	[other]
ffffffff81000010 T both
ffffffffc0000030 t both	[nvme]
`
	if err := os.WriteFile(path, []byte(symbols), 0o600); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{"nvme_timeout": true, "nvme_tcp_timeout": true, "twice": true, "both": true, "vfs_read": true}
	got, err := functionsOf(path, "nvme", wanted)
	if want := map[string]bool{"nvme_timeout": true}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func TestOnlineCPU(t *testing.T) {
	for message, want := range map[string]int{
		"online@/devices/system/cpu/cpu12\x00ACTION=online": 12, "online@/devices/system/cpu/cpu0": 0, "offline@/devices/system/cpu/cpu1": -1,
		"online@/devices/system/memory/memory3": -1, "online@/devices/system/cpu/cpux": -1, "": -1,
	} {
		if cpu, ok := OnlineCPU([]byte(message)); ok != (want >= 0) || ok && cpu != want {
			t.Errorf("%q: %d, %t", message, cpu, ok)
		}
	}
}
