package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/ast"

	"trace/lang/ir"
	"trace/lang/syntax"
)

// This file reads the block config = { … }. Its names are bpftrace's.

// settings are the names that mean something here. Each function stores a value, and returns what it should be if it is not that.
var settings = map[string]func(prog *ir.Program, value any, word string) (want string){
	"max_map_keys": func(prog *ir.Program, value any, _ string) string {
		n, ok := value.(uint64)
		if !ok || n < 1 || n > maxKeys {
			return fmt.Sprintf("a number from 1 to %d", maxKeys)
		}
		prog.MapKeys = uint32(n)
		return ""
	},
	"print_maps_on_exit": func(prog *ir.Program, value any, _ string) string {
		shown, ok := value.(bool)
		if n, isNumber := value.(uint64); isNumber && n <= 1 {
			shown, ok = n == 1, true
		}
		prog.Silent = !shown
		if !ok {
			return "true or false"
		}
		return ""
	},
	"stack_mode": func(prog *ir.Program, _ any, word string) string {
		mode, known := stackModes[word]
		prog.StackMode = mode
		if !known {
			return "bpftrace, perf or raw"
		}
		return ""
	},
	"missing_probes": func(prog *ir.Program, _ any, word string) string {
		i := slices.Index(missingChoices, word)
		if i < 0 {
			return syntax.Enumerate(missingChoices)
		}
		prog.Missing = ir.Missing(i)
		return ""
	},
}

// missingChoices are the values of missing_probes, the first ones of [ir.Missing].
var missingChoices = []string{"error", "warn", "ignore"}

const (
	noStackLimit = "the code generator knows how much stack is left"
	noStrings    = "a string is as long as its field"
	noCompiler   = "nothing is compiled by LLVM"
	available    = "it is available"
)

// idle maps the names that have no effect here to the reason.
var idle = map[string]string{
	"cache_user_symbols": "names of functions are kept as long as they are needed", "cpp_demangle": "names of functions are printed as the files have them",
	"lazy_symbolication": "names of functions are looked up when they are printed", "license": "the probes have their license", "log_size": noCompiler,
	"max_ast_nodes": noCompiler, "max_bpf_progs": "each probe has one program", "max_probes": "there are no more than the catalog has", "max_strlen": noStrings,
	"max_type_res_iterations": noCompiler, "on_stack_limit": noStackLimit, "perf_rb_pages": "the size of the buffer is --buffer-size",
	"show_debug_info": "stacks have no lines of source", "str_trunc_trailer": noStrings, "unstable_import": available, "unstable_macro": available,
	"unstable_map_decl": available, "unstable_tseries": available, "use_blazesym": "names of functions need no library", "verify_llvm_ir": noCompiler,
}

// maxKeys is the most keys that a map in the kernel can have room for.
const maxKeys = 1 << 31

// configure stores the settings of the program.
func (r *resolver) configure(prog *ir.Program, config []*syntax.Setting) {
	for _, s := range config {
		set := settings[s.Name]
		switch {
		case set != nil:
			value, _, _ := literalValue(s.Value)
			if want := set(prog, value, wordIn(s.Value)); want != "" {
				r.fail(syntax.SpanOf(s.Value), fmt.Sprintf("%s is not %s", s.Name, syntax.Print(s.Value)), "it is "+want)
			}
		case idle[s.Name] != "":
			r.warn(s.Span, s.Name+" has no effect", idle[s.Name])
		default:
			r.fail(s.Span, "there is no setting "+s.Name, r.settingHelp(s.Name))
		}
	}
}

// environment stores the settings of the environment, which precede the program's: BPFTRACE_MAX_MAP_KEYS=10000. Other variables of
// bpftrace mean nothing here.
func (o Options) environment(prog *ir.Program) error {
	for _, variable := range o.Environ {
		name, text, _ := strings.Cut(variable, "=")
		short, is := strings.CutPrefix(name, "BPFTRACE_")
		set := settings[strings.ToLower(short)]
		if !is || set == nil || strings.ToUpper(short) != short {
			continue
		}
		var value any = text == "true"
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			value = n
		} else if text != "true" && text != "false" {
			value = nil
		}
		if want := set(prog, value, strings.ToLower(text)); want != "" {
			return fmt.Errorf("%s=%s in the environment: it is %s", name, text, want)
		}
	}
	return nil
}

func (r *resolver) settingHelp(name string) string {
	var names []string
	for known := range settings {
		names = append(names, known)
	}
	slices.Sort(names)
	if help := syntax.DidYouMean(name, names); help != "" {
		return help
	}
	return "settings are " + strings.Join(names, " ")
}

// wordIn returns the word or the string that a value is, or "".
func wordIn(n ast.Node) string {
	switch n := n.(type) {
	case *ast.IdentifierNode:
		return strings.ToLower(n.Value)
	case *ast.StringNode:
		return strings.ToLower(n.Value)
	}
	return ""
}
