package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Limits of what is read: far above any configuration, and low enough that a wrong path, as of a disk or of a spool, fills neither the memory nor
// the time.
const (
	maxFile  = 4 << 20
	maxBytes = 4 * maxFile // of all files
	maxFiles = 1000        // of a folder
	readTime = time.Second // of a file that gives its bytes when it likes, as /proc/kmsg
)

// filesOf returns the files of a configuration. Names that begin with a dot are of Kubernetes (..data), or of editors.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("configuration: %w: give its file or folder with -c", err)
	case err != nil:
		return nil, fmt.Errorf("configuration: %w", err)
	case !info.IsDir():
		return []string{path}, nil
	}
	files, err := yamlIn(path)
	switch {
	case err != nil:
		return nil, fmt.Errorf("configuration: %w", err)
	case len(files) == 0:
		return nil, fmt.Errorf("configuration: the folder %s has no *.yaml", path)
	case len(files) > maxFiles:
		return nil, fmt.Errorf("configuration: the folder %s has more than %d *.yaml: put several programs into a file", path, maxFiles)
	}
	slices.Sort(files)
	return files, nil
}

// yamlIn returns the *.yaml of a folder, some more than maxFiles at most.
func yamlIn(folder string) (files []string, err error) {
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	for len(files) <= maxFiles {
		names, err := dir.Readdirnames(maxFiles)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".yaml") && !strings.HasPrefix(name, ".") {
				files = append(files, filepath.Join(folder, name))
			}
		}
	}
	return files, nil
}

// read reads a regular file, up to the limits. It waits for nobody, as for a file of the kernel that has nothing yet.
func (r *reader) read(name string) (string, error) {
	info, err := os.Stat(name) // to open some devices does something
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a file", name)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	defer f.Close()
	_ = f.SetReadDeadline(time.Now().Add(readTime)) // most files have none, and need none
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return "", err
	case len(data) > maxFile:
		return "", fmt.Errorf("%s has %d MiB, at most %d are read", name, max(info.Size(), int64(len(data)))>>20, maxFile>>20)
	case len(data) > r.left:
		return "", fmt.Errorf("%s is too much: at most %d MiB are read of all files together", name, maxBytes>>20)
	}
	r.left -= len(data)
	return string(data), nil
}
