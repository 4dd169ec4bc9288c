//go:build !vm

package main

import (
	"bytes"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// turns are turns of speech that a reader stumbles over, and what to write instead.
var turns = []struct {
	turn    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`\b(?:[Tt]hat|[Tt]hose)\s+of\b`), "name the thing again, or use 's"},
	{regexp.MustCompile(`\b[Oo]f\s+which\b`), "a second sentence"},
	{regexp.MustCompile(`\b[Bb]ut\s+for\b`), "except, or without"},
	{regexp.MustCompile(`\bany\s+more\b`), "no longer"},
	{regexp.MustCompile(`\b(?:[Ii]t|that|this|what|which|who)\s+is\s+none\b|\bis\s+none\s+of\b`), "is no X, or is not Y"},
	{regexp.MustCompile(`(?:^|[.:;]\s+)Else,?\s+[a-z]`), "otherwise"},
	{regexp.MustCompile(`\b(?:is|are|was|were)\s+to\s+(?:answer|appear|attach|be|begin|come|do|end|find|forget|give|go|have|hold|keep|know|last|look|make|print|quit|read|run|say|see|select|send|show|start|stay|stop|take|tell|use|wait|work|write)\b`), "must, should, or will"},
	{regexp.MustCompile(`\b(?:[Tt]ell|[Ss]ay)s\b|\bsai[d]\b`), "report, return, describe, show, or mean"},
}

// lineStart is what stands before the text in a line of a comment.
var lineStart = regexp.MustCompile(`(?m)^[\t ]*(?://|/?\*+|#+)`)

// TestWords finds those turns in comments and string literals of Go, and everywhere in the other files.
func TestWords(t *testing.T) {
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && name != ".ci" && d.Name() != "..":
			return filepath.SkipDir
		case d.IsDir() || !isProse(name):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(name, ".go") {
			text = prose(text)
		}
		text = lineStart.ReplaceAllFunc(text, func(mark []byte) []byte { return bytes.Repeat([]byte(" "), len(mark)) })
		for _, turn := range turns {
			for _, at := range turn.turn.FindAllIndex(text, -1) {
				t.Errorf("%s:%d: %q: write %s", name, 1+bytes.Count(text[:at[1]], []byte("\n")), bytes.Join(bytes.Fields(text[at[0]:at[1]]), []byte(" ")), turn.instead)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func isProse(name string) bool {
	return slices.Contains([]string{".c", ".go", ".h", ".md", ".sh", ".trace", ".txtar"}, filepath.Ext(name)) || strings.HasPrefix(name, ".ci/") || name == "Makefile"
}

// prose blanks all of a Go file except for comments and string literals: offsets and lines stay.
func prose(text []byte) []byte {
	blank := make([]byte, len(text))
	for i, c := range text {
		blank[i] = ';'
		if c == '\n' || c == ' ' || c == '\t' {
			blank[i] = c
		}
	}
	file := token.NewFileSet().AddFile("", -1, len(text))
	var s scanner.Scanner
	s.Init(file, text, nil, scanner.ScanComments)
	for {
		switch pos, tok, lit := s.Scan(); tok {
		case token.EOF:
			return blank
		case token.COMMENT, token.STRING:
			copy(blank[file.Offset(pos):], lit)
		}
	}
}
