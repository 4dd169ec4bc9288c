package lang

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"trace/lang/syntax"
)

// parse parses a program and the files that it imports.
func parse(name, text string) (*syntax.Program, error) {
	tree, err := syntax.Parse(name, text)
	if err != nil || len(tree.Imports) == 0 {
		return tree, err
	}
	folder := filepath.Dir(name)
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("the folder of the program: %w", err)
	}
	defer root.Close()
	if err := tree.Import(importer{root, folder}.read); err != nil {
		return nil, err
	}
	return tree, nil
}

// importer reads imported files. They are in the folder of the program or below it, so a program reads nothing else.
type importer struct {
	root   *os.Root
	folder string
}

// sourceEndings are the names of programs in a folder that is imported.
var sourceEndings = []string{".trace", ".bt"}

// read returns the file that the file from imports as name, or all programs of a folder.
func (i importer) read(from, name string) ([]syntax.Source, error) {
	inRoot, err := filepath.Rel(i.folder, filepath.Dir(from))
	if err != nil {
		return nil, err
	}
	absolute := path.IsAbs(name)
	name = path.Join(filepath.ToSlash(inRoot), name)
	switch {
	case slices.Contains([]string{".h", ".c"}, path.Ext(name)):
		return nil, errors.New("files of C are not needed: trace -lv lists the fields of each probe")
	case absolute || !filepath.IsLocal(name):
		return nil, fmt.Errorf("the file must be in %s or below it, where the program is", i.folder)
	}
	info, err := i.root.Stat(name)
	switch {
	case err != nil:
		return nil, plain(err)
	case !info.IsDir():
		return i.files(name)
	}
	entries, err := fs.ReadDir(i.root.FS(), name)
	if err != nil {
		return nil, plain(err)
	}
	var names []string
	for _, entry := range entries {
		if slices.Contains(sourceEndings, path.Ext(entry.Name())) {
			names = append(names, path.Join(name, entry.Name()))
		}
	}
	if names == nil {
		return nil, fmt.Errorf("the folder has no file that ends in %s", strings.Join(sourceEndings, " or "))
	}
	return i.files(names...)
}

func (i importer) files(names ...string) (all []syntax.Source, err error) {
	for _, name := range names {
		source, err := i.file(name)
		if err != nil {
			return nil, err
		}
		all = append(all, source)
	}
	return all, nil
}

// maxImported bounds the text of a file.
const maxImported = 1 << 20

// file reads a file. What everyone can write to is not trusted: the program may run as root.
func (i importer) file(name string) (syntax.Source, error) {
	source := syntax.Source{Name: filepath.Join(i.folder, filepath.FromSlash(name))}
	folder, err := i.root.Stat(path.Dir(name))
	if err != nil {
		return source, plain(err)
	}
	const everyone = 0o002
	if folder.Mode().Perm()&everyone != 0 {
		return source, fmt.Errorf("everyone can write to the folder %s (chmod o-w %[1]s)", filepath.Dir(source.Name))
	}
	f, err := i.root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0) // opening a pipe would wait for a writer
	if err != nil {
		return source, plain(err)
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && !info.Mode().IsRegular() {
		return source, errors.New("not a file")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxImported+1))
	if err == nil && len(text) > maxImported {
		err = fmt.Errorf("more than %d bytes", maxImported)
	}
	source.Content = string(text)
	return source, err
}

// plain returns the cause of an error about a file whose name is known.
func plain(err error) error { return cmp.Or(errors.Unwrap(err), err) }
