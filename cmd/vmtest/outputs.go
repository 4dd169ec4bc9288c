package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// An outputFile is a file or folder that a test binary writes in the shared folder and that go test expects elsewhere.
type outputFile struct {
	shared string
	wanted string
}

// outputFlags are the flags of test binaries that name an output; true marks a
// folder.
func outputFlags() map[string]bool {
	return map[string]bool{
		"testlogfile":  false,
		"coverprofile": false,
		"cpuprofile":   false,
		"memprofile":   false,
		"blockprofile": false,
		"mutexprofile": false,
		"trace":        false,
		"gocoverdir":   true,
		"outputdir":    true,
	}
}

// mapOutputs rewrites the paths of such flags into the shared folder.
func mapOutputs(args []string, cwd, share string) ([]string, []outputFile, error) {
	args = append([]string(nil), args...)
	hasDir := hasOutputDir(args)
	var outputs []outputFile
	for i, arg := range args {
		name, value, ok := testFlag(arg)
		isDir, isOutput := outputFlags()[name]
		if !ok || !isOutput || value == "" || i == 0 {
			continue
		}
		if !filepath.IsAbs(value) {
			if hasDir && !isDir {
				continue // ends up in the output folder, which is mapped itself
			}
			value = filepath.Join(cwd, value)
		}
		file := filepath.Join(reportDir, fmt.Sprintf("output%d", i))
		out := outputFile{shared: filepath.Join(share, file), wanted: value}
		if isDir {
			if err := os.MkdirAll(out.shared, 0o755); err != nil {
				return nil, nil, err
			}
		}
		outputs = append(outputs, out)
		args[i] = "-test." + name + "=" + filepath.Join(guestShare, file)
	}
	return args, outputs, nil
}

func hasOutputDir(args []string) bool {
	for _, arg := range args {
		if name, value, ok := testFlag(arg); ok && name == "outputdir" && value != "" {
			return true
		}
	}
	return false
}

// testFlag splits -test.name=value, the form in which go test passes flags.
func testFlag(arg string) (name, value string, ok bool) {
	rest, isTest := strings.CutPrefix(arg, "-test.")
	name, value, hasValue := strings.Cut(rest, "=")
	return name, value, isTest && hasValue
}

// copyOutputs copies what the guest wrote to the expected paths. A file that a test did not write is no error.
func copyOutputs(outputs []outputFile) error {
	for _, o := range outputs {
		err := filepath.WalkDir(o.shared, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			rel, err := filepath.Rel(o.shared, path)
			if err != nil {
				return err
			}
			target := filepath.Join(o.wanted, rel)
			if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
				return err
			}
			return copyFile(target, path)
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("copy test output: %w", err)
		}
	}
	return nil
}
