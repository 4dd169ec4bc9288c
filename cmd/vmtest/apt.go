package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const debianKeyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// apt reads one suite and architecture of Debian with a private state, so that
// this machine's own package lists stay as they are.
type apt struct {
	dir    string // private; removed by its owner
	mirror string
	suite  string
	arch   string
}

func newApt(dir, mirror, suite, arch string) (apt, error) {
	a := apt{dir: dir, mirror: mirror, suite: suite, arch: arch}
	if _, err := os.Stat(debianKeyring); err != nil {
		return a, fmt.Errorf("debian's signing keys: %w; install debian-archive-keyring", err)
	}
	for _, sub := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return a, err
		}
	}
	return a, os.WriteFile(filepath.Join(dir, "sources.list"), []byte(a.source()), 0o644)
}

// source asks for the package index only, not for translations, icons or file
// lists.
func (a apt) source() string {
	return fmt.Sprintf("deb [arch=%s target=Packages signed-by=%s] %s %s main\n",
		a.arch, debianKeyring, a.mirror, a.suite)
}

// options go on the command line because there they win over apt.conf.
func (a apt) options() []string {
	set := []string{
		"Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"),
		"Dir::Etc::sourceparts=-",
		"Dir::State::Lists=" + filepath.Join(a.dir, "lists"),
		"Dir::State::status=/dev/null",
		"Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"APT::Architecture=" + a.arch,
		"APT::Architectures=" + a.arch,
		// apt's own user cannot write to our folder.
		"APT::Sandbox::User=root",
		"Acquire::Retries=3",
		// By default apt uses an old index if it cannot fetch a new one.
		"APT::Update::Error-Mode=any",
	}
	var args []string
	for _, o := range set {
		args = append(args, "-o", o)
	}
	return args
}

func (a apt) run(ctx context.Context, program string, args ...string) (string, error) {
	return runTool(ctx, program, append(a.options(), args...)...)
}

func (a apt) update(ctx context.Context) error {
	_, err := a.run(ctx, "apt-get", "-q", "update")
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("read package index of %s from %s: %w\n(another mirror can be set with VMTEST_MIRROR)", a.suite, a.mirror, err)
	}
	return err
}

func (a apt) names(ctx context.Context, prefix string) ([]string, error) {
	out, err := a.run(ctx, "apt-cache", "pkgnames", prefix)
	return strings.Fields(out), err
}

func (a apt) depends(ctx context.Context, pkg string) (string, error) {
	out, err := a.run(ctx, "apt-cache", "show", "--no-all-versions", pkg)
	if err != nil {
		return "", err
	}
	return field(out, "Depends"), nil
}

// field reads one line of a package's description.
func field(stanza, name string) string {
	for line := range strings.Lines(stanza) {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// unpack downloads packages and puts their files below dest. It runs nothing from them.
func (a apt) unpack(ctx context.Context, dest string, pkgs ...string) error {
	debs := filepath.Join(a.dir, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(debs)
	if err := a.download(ctx, debs, pkgs...); err != nil {
		return err
	}
	return unpackAll(ctx, debs, dest)
}

// unpackWithDependencies does the same for packages and all that they need.
func (a apt) unpackWithDependencies(ctx context.Context, dest string, pkgs ...string) error {
	// Nothing is installed, so there is nothing to lock.
	args := []string{"-q", "-y", "-o", "Debug::NoLocking=true", "--no-install-recommends",
		"--download-only", "install"}
	if _, err := a.run(ctx, "apt-get", append(args, pkgs...)...); err != nil {
		return fmt.Errorf("download %s: %w", strings.Join(pkgs, " "), err)
	}
	debs := filepath.Join(a.dir, "cache/archives")
	defer os.RemoveAll(debs)
	return unpackAll(ctx, debs, dest)
}

func unpackAll(ctx context.Context, debs, dest string) error {
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, deb := range files {
		if _, err := runTool(ctx, "dpkg", "-x", deb, dest); err != nil {
			return fmt.Errorf("unpack %s: %w", filepath.Base(deb), err)
		}
	}
	return nil
}

// download has to run in the target folder: apt-get knows no option for it.
func (a apt) download(ctx context.Context, dir string, pkgs ...string) error {
	args := append(a.options(), "-q", "download")
	cmd := command(ctx, "apt-get", append(args, pkgs...)...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("download %s: %w\n%s", strings.Join(pkgs, " "), err, lastLines(string(out), 15))
	}
	return nil
}
