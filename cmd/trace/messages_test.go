//go:build !vm

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// makesMessage are the names of functions that take the text of an error, a note or a help.
var makesMessage = regexp.MustCompile(`(?i)^(new|at|advise|notef?|panic|.*errorf?|fail.*|mistake.*|.*help|warn.*|refuse.*)$`)

// verbs are what splits a message into its fixed parts.
var verbs = regexp.MustCompile(`%[-+# 0-9.*\[\]]*[a-zA-Z%]`)

// untested are the messages that no test provokes, by reason.
var untested = map[string][]string{
	"nobody sees it: it is compared, never shown":          {"enough events", "help was shown instead", "the settings have changed"},
	"a test holds that each embedded object can be read":   {"types of embedded object %s: %w"},
	"the passes before exclude it":                         {"a value is absent that cannot be", "compile for expr's VM: %w", "second run: %w", "-f pprof: %w", "%s is not a function in BTF"},
	"its test looks for the mistake, and this is the help": {"write the endpoint there into the configuration, without /v1/metrics and /v1/logs", "the elements of a tuple in it count, too", "keep a part of it in a variable", "++ and -- of something that has a ++ or -- doubles it", "set a map or a variable before the text reads it, and name fewer probes", "the patterns of the program become too large: more than %d states"},
	"its test looks for the cause, which follows":          {"its maps are not read: %w", "the configuration was not checked: %w", "the configuration was not read: %w", "files that trace was started with: %w"},
	"nobody sees it: a file is left without names":         {"it ends too early", "%s is compressed", "compression %v is unknown", "negative offset"},
	"only a process that changes at that moment has it":    {"pidfd_open: %w", "pidfd_getfd: %w", "descriptor %d was a device, and is no longer one"},
	"a system call that does not fail here":                {"uname: %w", "name of this host: %w"},
	"only a kernel without types, or before 5.15, has it":  {"--pgid and --pidns need the types of the kernel: %w", "registers of a task: %w"},
}

// Every message has a test: the longest fixed part of each stands in a test or in its data.
func TestEveryMessageHasATest(t *testing.T) {
	var messages, tests []string
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		name := strings.TrimPrefix(filepath.ToSlash(path), "../../")
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && d.Name() != ".." || slices.Contains([]string{"cmd/bench", "cmd/vmtest", "lang/codegen/bpftest", "lang/langtest", "probes/filetest"}, name)):
			return filepath.SkipDir
		case d.IsDir() || name == "cmd/trace/messages_test.go":
			return nil
		case isTest(name):
			text, err := os.ReadFile(path)
			tests = append(tests, plain(string(text)))
			return err
		case filepath.Ext(name) == ".go":
			found, err := messagesOf(path)
			messages = append(messages, found...)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	tested, all := func(part string) bool {
		return slices.ContainsFunc(tests, func(text string) bool { return strings.Contains(text, part) })
	}, make(map[string]bool)
	for _, m := range messages {
		all[m] = true
		if part := longestPart(m); !tested(part) && !isException(m) {
			t.Errorf("no test has %q of the message %q", part, m)
		}
	}
	for _, exceptions := range untested {
		for _, m := range exceptions {
			if !all[m] || tested(longestPart(m)) {
				t.Errorf("%q is no longer an exception", m)
			}
		}
	}
}

func isException(message string) bool {
	for _, exceptions := range untested {
		if slices.Contains(exceptions, message) {
			return true
		}
	}
	return false
}

func isTest(name string) bool {
	return strings.HasSuffix(name, "_test.go") || strings.Contains(name, "testdata/") && filepath.Ext(name) != ".rec"
}

// plain takes away what escapes and quotes, which a test may write in another way.
func plain(text string) string { return strings.NewReplacer(`\`, "", "`", "").Replace(text) }

func longestPart(message string) (longest string) {
	for _, part := range verbs.Split(message, -1) {
		if part = strings.TrimSpace(plain(part)); len(part) > len(longest) {
			longest = part
		}
	}
	return longest
}

// messagesOf returns the literals of more than one word that a file gives to the functions of messages.
func messagesOf(path string) (messages []string, _ error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		return nil, err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || !makesMessage.MatchString(nameOf(call.Fun)) {
			return true
		}
		for _, arg := range call.Args {
			if text, isText := literal(arg); isText && len(text) > 6 && strings.Contains(text, " ") {
				messages = append(messages, text)
			}
		}
		return true
	})
	return messages, nil
}

func nameOf(called ast.Expr) string {
	switch called := called.(type) {
	case *ast.Ident:
		return called.Name
	case *ast.SelectorExpr:
		return called.Sel.Name
	}
	return ""
}

// literal returns the text of a literal, and of a sum of them.
func literal(e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, e.Kind == token.STRING && err == nil
	case *ast.BinaryExpr:
		left, isText := literal(e.X)
		right, isTextToo := literal(e.Y)
		return left + right, isText && isTextToo
	}
	return "", false
}
