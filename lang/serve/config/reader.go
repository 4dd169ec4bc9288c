package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"trace/lang/syntax"
)

// reader walks the nodes of files. It does not let the YAML library fill structs: its errors have no place in the line, and know no keys
// that are near.
type reader struct {
	config *Config
	text   *syntax.Text // of the file
	// set is where each key of the service was set: once in all files.
	set map[string]string
	// named are the programs by their names.
	named    map[string]*Program
	mistakes syntax.ErrorList
	// more counts the mistakes beyond them: nobody would read so many.
	more int
	// left is how many bytes may still be read, of all files.
	left int
}

// mostMistakes is how many mistakes have their place.
const mostMistakes = 20

// err returns the mistakes, or nil without any.
func (r *reader) err() error {
	if r.more > 0 {
		return errors.Join(r.mistakes.Err(), fmt.Errorf("and %d more mistakes", r.more))
	}
	return r.mistakes.Err()
}

// value reads the value of a key.
type value func(n *yaml.Node)

func (r *reader) file(name, text string) {
	r.text = &syntax.Text{Name: name, Content: text}
	var root, more yaml.Node
	loader, err := yaml.NewLoader(strings.NewReader(text))
	if err == nil {
		err = loader.Load(&root)
	}
	switch {
	case errors.Is(err, io.EOF), err == nil && len(root.Content) == 0:
		return // only comments
	case err != nil:
		r.broken(err)
		return
	case !errors.Is(loader.Load(&more), io.EOF):
		r.fail(&more, "a file is one document", "write a file for each, in a folder")
		return
	}
	c := r.config
	r.mapping(root.Content[0], "the configuration", map[string]value{
		"listen":         r.once("listen", r.address(&c.Listen, true)),
		"web_config":     r.once("web_config", r.path(&c.WebConfig)),
		"reload_by_http": r.once("reload_by_http", r.boolean(&c.ReloadByHTTP)),
		"pprof":          r.once("pprof", r.address(&c.Pprof, false)),
		"otlp":           r.once("otlp", r.otlp),
		"labels":         r.once("labels", r.labels),
		"filter":         r.once("filter", r.filter),
		"programs":       r.programs,
	})
}

// broken notes a text that cannot be parsed.
func (r *reader) broken(err error) {
	at, message := &yaml.Node{Line: 1, Column: 1}, err.Error()
	var where *yaml.LoadError
	if errors.As(err, &where) && where.Mark.Line > 0 {
		at, message = &yaml.Node{Line: where.Mark.Line, Column: where.Mark.Column + 1}, where.Message
	}
	r.fail(at, "this is not YAML: "+message, "")
}

// fail notes a mistake at a node.
func (r *reader) fail(n *yaml.Node, msg, help string) {
	if len(r.mistakes) == mostMistakes {
		r.more++
		return
	}
	r.mistakes = append(r.mistakes, r.place(n).Error(msg, help))
}

// wrong reports whether there are mistakes.
func (r *reader) wrong() bool { return len(r.mistakes) > 0 }

func (r *reader) place(n *yaml.Node) Place {
	p := Place{text: r.text, line: n.Line, column: n.Column, length: 1}
	if n.Kind == yaml.ScalarNode {
		p.length = max(1, len(n.Value))
	}
	return p
}

// mapping reads the keys of a mapping. what describes it.
func (r *reader) mapping(n *yaml.Node, what string, known map[string]value) {
	if n = resolved(n); n.Kind != yaml.MappingNode {
		r.fail(n, what+" consists of keys and values", "its keys are "+list(known))
		return
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		read := known[key.Value]
		switch {
		case read == nil && len(r.mistakes) == mostMistakes:
			r.more++ // and nothing that is near is searched
		case read == nil:
			r.fail(key, fmt.Sprintf("%s has no key %q", what, clip(key.Value)), didYouMean(clip(key.Value), known))
		case seen[key.Value]:
			r.fail(key, fmt.Sprintf("%q is set twice", key.Value), "")
		default:
			seen[key.Value] = true
			read(resolved(n.Content[i+1]))
		}
	}
}

// resolved returns what an alias stands for. The library refuses aliases that contain themselves.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

// clip bounds a word of the configuration for a message.
func clip(word string) string {
	const most = 100
	if len(word) <= most {
		return word
	}
	return strings.ToValidUTF8(word[:most], "") + "…"
}

func list[V any](known map[string]V) string {
	return strings.Join(slices.Sorted(maps.Keys(known)), ", ")
}

func didYouMean[V any](key string, known map[string]V) string {
	if near := syntax.Nearest(key, slices.Sorted(maps.Keys(known))); near != "" {
		return fmt.Sprintf("did you mean %s?", near)
	}
	return "its keys are " + list(known)
}

// once allows a key of the service in one file.
func (r *reader) once(key string, read value) value {
	return func(n *yaml.Node) {
		if before := r.set[key]; before != "" {
			r.fail(n, fmt.Sprintf("%q is set in %s, too", key, before), "")
			return
		}
		r.set[key] = r.text.Name
		read(n)
	}
}

// scalar returns the text of a value.
func (r *reader) scalar(n *yaml.Node, what string) (text string, ok bool) {
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		r.fail(n, "this is not "+what, "")
		return "", false
	}
	return n.Value, true
}

func (r *reader) str(at *string) value {
	return func(n *yaml.Node) {
		if text, ok := r.scalar(n, "a text"); ok {
			*at = text
		}
	}
}

func (r *reader) boolean(at *bool) value {
	return func(n *yaml.Node) {
		switch n.Value {
		case "true", "false":
			*at = n.Value == "true"
		default:
			r.fail(n, "this is not true or false", "")
		}
	}
}

// number reads a number from low to high.
func number[T int | uint32](r *reader, at *T, low, high uint32) value {
	return func(n *yaml.Node) {
		v, err := strconv.ParseUint(n.Value, 10, 32)
		if n.Kind != yaml.ScalarNode || err != nil || uint32(v) < low || uint32(v) > high {
			r.fail(n, fmt.Sprintf("this is not a number from %d to %d", low, high), "")
			return
		}
		*at = T(v)
	}
}

// path reads the name of a file beside the configuration.
func (r *reader) path(at *string) value {
	return func(n *yaml.Node) {
		if name, ok := r.scalar(n, "the name of a file"); ok {
			*at = r.beside(name)
		}
	}
}

func (r *reader) beside(name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(r.text.Name), name)
}

// address reads host:port or, if local, unix:PATH. "" is no address.
func (r *reader) address(at *string, local bool) value {
	return func(n *yaml.Node) {
		text, ok := r.scalar(n, "an address")
		if !ok {
			return
		}
		_, port, err := net.SplitHostPort(text)
		_, badPort := strconv.ParseUint(port, 10, 16)
		isFile := local && strings.HasPrefix(text, "unix:/")
		if text != "" && !isFile && (err != nil || badPort != nil) {
			help := "write it as 127.0.0.1:9935 or [::]:9935"
			if local {
				help += ", or as unix:/run/trace/web.sock"
			}
			r.fail(n, "this is not an address", help)
			return
		}
		*at = text
	}
}

func (r *reader) duration(at *time.Duration) value {
	return func(n *yaml.Node) {
		d, err := syntax.ParseDuration(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || d < time.Second || d > 24*time.Hour {
			r.fail(n, "this is not a duration from 1s to 24h", "write it as 30s or 1m")
			return
		}
		*at = d
	}
}

// texts reads a mapping from names to texts.
func (r *reader) texts(n *yaml.Node, what string, valid func(name string) (help string), at map[string]string) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "this is not "+what, "write them as {name: value}")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if help := valid(key.Value); help != "" {
			r.fail(key, fmt.Sprintf("%q cannot be a name here", clip(key.Value)), help)
			continue
		}
		if _, twice := at[key.Value]; twice {
			r.fail(key, fmt.Sprintf("%q is set twice", clip(key.Value)), "")
			continue
		}
		if text, ok := r.scalar(resolved(n.Content[i+1]), "a text or a number"); ok {
			at[key.Value] = text
		}
	}
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// labels are in the form of Prometheus. Some names mean something there or here.
func (r *reader) labels(n *yaml.Node) {
	r.texts(n, "labels", func(name string) string {
		switch {
		case !labelName.MatchString(name):
			return "a label consists of letters, digits and _, and does not begin with a digit"
		case strings.HasPrefix(name, "__"), slices.Contains([]string{"le", "quantile", "program", "probe", "reason", "variant", "map"}, name):
			return "this label has a meaning of its own"
		}
		return ""
	}, r.config.Labels)
}

func (r *reader) filter(n *yaml.Node) {
	f := &r.config.Filter
	r.mapping(n, "the filter", map[string]value{
		"pid": number(r, &f.PID, 1, 1<<22), "pgid": number(r, &f.PGID, 1, 1<<22), "pidns": number(r, &f.PIDNS, 1, 1<<32-1),
		"comm": r.str(&f.Comm), "cgroup": r.str(&f.Cgroup),
	})
}

func (r *reader) otlp(n *yaml.Node) {
	o := &OTLP{Interval: defaultInterval, Headers: map[string]string{}}
	r.config.OTLP = o
	r.mapping(n, "otlp", map[string]value{
		"endpoint": r.endpoint(&o.Endpoint), "interval": r.duration(&o.Interval), "headers": r.headers(o.Headers),
	})
	if o.Endpoint == "" && !r.wrong() {
		r.fail(n, "otlp has no endpoint", "write endpoint: http://127.0.0.1:4318")
	}
}

func (r *reader) endpoint(at *string) value {
	return func(n *yaml.Node) {
		u, err := url.Parse(n.Value)
		if n.Kind != yaml.ScalarNode || err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			r.fail(n, "this is not the URL of an OTLP receiver", "write it as http://127.0.0.1:4318, without /v1/metrics")
			return
		}
		*at = strings.TrimSuffix(n.Value, "/")
	}
}

// headers may be in files: "${file:/run/secrets/otlp}".
func (r *reader) headers(at map[string]string) value {
	return func(n *yaml.Node) {
		r.texts(n, "headers", func(name string) string {
			if strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || c == ':' }) {
				return "the name of a header has no blanks"
			}
			return ""
		}, at)
		for name, text := range at {
			file, isFile := strings.CutPrefix(text, "${file:")
			if !isFile {
				continue
			}
			secret, err := r.read(r.beside(strings.TrimSuffix(file, "}")))
			if err != nil {
				r.fail(n, fmt.Sprintf("header %s: %v", name, err), "")
				continue
			}
			at[name] = strings.TrimSpace(secret)
		}
	}
}

func (r *reader) programs(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		r.fail(n, "programs is a list", "begin each program with `- name: NAME`")
		return
	}
	for _, p := range n.Content {
		r.program(resolved(p))
	}
}

var programName = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)

func (r *reader) program(n *yaml.Node) {
	p := &Program{Series: DefaultSeries, Params: map[string]string{}, Maps: map[string]Map{}, Place: r.place(n)}
	var file, text *yaml.Node
	keep := func(at **yaml.Node) value { return func(n *yaml.Node) { *at = n } }
	before := len(r.mistakes) + r.more
	r.mapping(n, "a program", map[string]value{
		"name": r.name(p), "script": r.str(&p.Script), "file": keep(&file), "program": keep(&text),
		"params": func(n *yaml.Node) { r.texts(n, "params", func(string) string { return "" }, p.Params) },
		"series": number(r, &p.Series, 1, 100_000), "events": r.events(&p.Events),
		"maps": func(n *yaml.Node) { r.mapsOf(n, p.Maps) },
	})
	if len(r.mistakes)+r.more > before {
		return
	}
	if sources := sourcesOf(p, file, text); p.Name == "" || len(sources) != 1 {
		r.fail(n, "a program has a name, and one of script, file and program", "")
		return
	}
	switch {
	case file != nil:
		r.programFile(file, p)
	case text != nil:
		r.inline(text, p)
	}
	r.config.Programs, r.named[p.Name] = append(r.config.Programs, p), p
}

func sourcesOf(p *Program, file, text *yaml.Node) (sources []string) {
	for name, is := range map[string]bool{"script": p.Script != "", "file": file != nil, "program": text != nil} {
		if is {
			sources = append(sources, name)
		}
	}
	return sources
}

func (r *reader) name(p *Program) value {
	return func(n *yaml.Node) {
		other := r.named[n.Value]
		switch {
		case !programName.MatchString(n.Value):
			r.fail(n, fmt.Sprintf("%q cannot be the name of a program", clip(n.Value)), "it consists of a letter and more letters, digits and _, all small")
		case other != nil && len(r.mistakes) < mostMistakes:
			r.fail(n, fmt.Sprintf("program %s is also at %s", clip(n.Value), other.Place), "")
		case other != nil:
			r.more++
		default:
			p.Name, p.Place = n.Value, r.place(n)
		}
	}
}

func (r *reader) events(at *string) value {
	return func(n *yaml.Node) {
		if n.Value != "otlp" && n.Value != "none" {
			r.fail(n, "events are sent to otlp or to none", "")
			return
		}
		if n.Value == "otlp" {
			*at = n.Value
		}
	}
}

func (r *reader) mapsOf(n *yaml.Node, at map[string]Map) {
	if n.Kind != yaml.MappingNode {
		r.fail(n, "maps consists of names of maps and what is known of them", "write it as {n: {help: …}}")
		return
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		var m Map
		metric := func(n *yaml.Node) {
			r.str(&m.Metric)(n)
			m.Place = r.place(n)
		}
		r.mapping(n.Content[i+1], "a map", map[string]value{"help": r.str(&m.Help), "metric": metric})
		if m.Metric != "" && !programName.MatchString(m.Metric) {
			r.fail(n.Content[i+1], fmt.Sprintf("%q cannot be the name of a metric", clip(m.Metric)), "it consists of small letters, digits and _")
		}
		at[strings.TrimPrefix(n.Content[i].Value, "@")] = m
	}
}

// programFile reads a program that stands in a file of its own.
func (r *reader) programFile(n *yaml.Node, p *Program) {
	name, ok := r.scalar(n, "the name of a file")
	if !ok {
		return
	}
	text, err := r.read(r.beside(name))
	if err != nil {
		r.fail(n, err.Error(), "the name is relative to the configuration")
		return
	}
	p.Text = syntax.Text{Name: r.beside(name), Content: text}
}

// inline is a program in the configuration. Mistakes in it are shown with the program's own lines: YAML may have folded them.
func (r *reader) inline(n *yaml.Node, p *Program) {
	text, ok := r.scalar(n, "a program")
	if ok && strings.TrimSpace(text) == "" {
		r.fail(n, "the program is empty", "")
	}
	p.Text = syntax.Text{Name: fmt.Sprintf("%s:%d", r.text.Name, n.Line), Content: text}
}
