//go:build linux

package kernel

import (
	"bufio"
	"compress/gzip"
	"io"
	"os"
	"strings"
)

// configFiles are where a kernel's configuration may be.
func configFiles(release string) []string {
	return []string{"/proc/config.gz", "/boot/config-" + release, "/lib/modules/" + release + "/config"}
}

// readConfig returns what read finds in the first of the files that can be read, and which file that is.
func readConfig(files []string, read func(io.Reader) (string, error)) (name, text string) {
	for _, name := range files {
		if text, err := readConfigFile(name, read); err == nil {
			return name, text
		}
	}
	return "", ""
}

func readConfigFile(name string, read func(io.Reader) (string, error)) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if !strings.HasSuffix(name, ".gz") {
		return read(f)
	}
	unpacked, err := gzip.NewReader(bufio.NewReader(f))
	if err != nil {
		return "", err
	}
	return read(unpacked)
}

// notConfigured returns the file that shows that the kernel was built without an option, like CONFIG_KPROBES; "" if none does.
func notConfigured(files []string, option string) string {
	name, value := readConfig(files, func(config io.Reader) (string, error) {
		lines := bufio.NewScanner(config)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), option+"="); ok {
				return value, nil
			}
		}
		return "", lines.Err()
	})
	if value != "" {
		return ""
	}
	return name
}

// runningConfig are the files of the running kernel.
func runningConfig() []string {
	release, err := Version()
	if err != nil {
		return nil
	}
	return configFiles(release)
}
