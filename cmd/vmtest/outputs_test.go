package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestMapOutputs(t *testing.T) {
	share := t.TempDir()
	args := []string{"/tmp/b/pkg.test", "-test.testlogfile=/tmp/b/testlog.txt", "-test.paniconexit0",
		"-test.timeout=10m0s", "-test.coverprofile=_cover_.out", "-test.gocoverdir=/tmp/b/cov", "arg"}
	got, outputs, err := mapOutputs(args, "/src/pkg", share)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/tmp/b/pkg.test", "-test.testlogfile=/work-share/.vmtest/output1", "-test.paniconexit0",
		"-test.timeout=10m0s", "-test.coverprofile=/work-share/.vmtest/output4", "-test.gocoverdir=/work-share/.vmtest/output5", "arg"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	wantOut := []outputFile{
		{filepath.Join(share, ".vmtest/output1"), "/tmp/b/testlog.txt"},
		{filepath.Join(share, ".vmtest/output4"), "/src/pkg/_cover_.out"},
		{filepath.Join(share, ".vmtest/output5"), "/tmp/b/cov"},
	}
	if !slices.Equal(outputs, wantOut) {
		t.Errorf("outputs %q, want %q", outputs, wantOut)
	}
}

// With an output folder, relative names are below it and stay as they are.
func TestMapOutputsFolder(t *testing.T) {
	args := []string{"x.test", "-test.outputdir=/src", "-test.cpuprofile=cpu.out"}
	got, outputs, err := mapOutputs(args, "/src/pkg", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"x.test", "-test.outputdir=/work-share/.vmtest/output1", "-test.cpuprofile=cpu.out"}
	if !slices.Equal(got, want) || len(outputs) != 1 || outputs[0].wanted != "/src" {
		t.Errorf("got %q, outputs %q", got, outputs)
	}
}

func TestCopyOutputs(t *testing.T) {
	shared, wanted := t.TempDir(), t.TempDir()
	for _, name := range []string{"file", "dir/a"} {
		path := filepath.Join(shared, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	err := copyOutputs([]outputFile{
		{filepath.Join(shared, "file"), filepath.Join(wanted, "profile")},
		{filepath.Join(shared, "dir"), filepath.Join(wanted, "cov")},
		{filepath.Join(shared, "absent"), filepath.Join(wanted, "absent")},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"profile": "file", "cov/a": "dir/a"} {
		if got := readText(filepath.Join(wanted, name)); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
	if exists(filepath.Join(wanted, "absent")) {
		t.Error("made a file that the guest did not write")
	}
}
