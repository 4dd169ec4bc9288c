package main

import (
	"fmt"
	"go/doc/comment"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand prints the manual page in the language of man(7). All of it comes from what the command says of itself.
func manCommand(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    "man",
		Hidden: true,
		Short:  "print the manual page",
		Args:   usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeMan(s.out, cmd.Root())
		},
	}
}

func writeMan(out io.Writer, root *cobra.Command) error {
	m := &manPage{}
	m.line(`.TH TRACE 1`)
	m.section("NAME")
	m.text("trace - filter, aggregate and print RDMA and NVMe events, in the kernel")
	m.section("SYNOPSIS")
	m.line(`.B trace`)
	m.text("[flags] PROGRAM|SCRIPT")
	for _, c := range root.Commands() {
		if isListed(c) {
			m.line(".br")
			m.line(`.B trace`)
			m.text(c.Use)
		}
	}
	m.section("DESCRIPTION")
	m.text(root.Long)
	m.section("EXAMPLES")
	m.code(root.Example)
	m.section("OPTIONS")
	m.flags(root.Flags())
	m.section("COMMANDS")
	for _, c := range root.Commands() {
		if !isListed(c) {
			continue
		}
		m.line(".TP")
		m.line(".B " + escape(c.Use))
		m.text(c.Short)
		if own := c.NonInheritedFlags(); c.Name() == "record" {
			m.line(".RS")
			own.VisitAll(func(f *pflag.Flag) {
				if root.Flags().Lookup(f.Name) == nil || f.Name == "output" {
					m.flag(f)
				}
			})
			m.line(".RE")
		}
	}
	for _, t := range topics {
		text, err := t.text()
		if err != nil {
			return err
		}
		var parser comment.Parser
		m.section(strings.ToUpper(t.name))
		blocks := parser.Parse(text).Content
		if h, ok := blocks[0].(*comment.Heading); ok && strings.EqualFold(plain(h.Text), t.name) {
			blocks = blocks[1:]
		}
		m.blocks(blocks)
	}
	_, err := io.WriteString(out, m.String())
	return err
}

// isListed tells whether the help lists a command.
func isListed(c *cobra.Command) bool { return c.IsAvailableCommand() || c.Name() == "help" }

// manPage is a manual page in the making.
type manPage struct{ strings.Builder }

func (m *manPage) line(s string)       { fmt.Fprintln(m, s) }
func (m *manPage) section(name string) { m.line(".SH " + escape(name)) }

// text writes running text. A line that begins with a dot or a quote would be a command.
func (m *manPage) text(s string) {
	for line := range strings.Lines(s) {
		line = escape(strings.TrimRight(line, "\n"))
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			line = `\&` + line
		}
		m.line(line)
	}
}

func escape(s string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
}

// code writes lines as they are.
func (m *manPage) code(s string) {
	m.line(".PP")
	m.line(".nf")
	m.line(".RS 4")
	m.text(strings.Trim(s, "\n"))
	m.line(".RE")
	m.line(".fi")
}

func (m *manPage) flags(f *pflag.FlagSet) { f.VisitAll(m.flag) }

func (m *manPage) flag(f *pflag.Flag) {
	value, usage := pflag.UnquoteUsage(f)
	name := "--" + f.Name
	if f.Shorthand != "" {
		name = "-" + f.Shorthand + ", " + name
	}
	m.line(".TP")
	m.line(".B " + escape(name) + " " + escape(value))
	m.text(usage)
}

// blocks writes what go/doc/comment has parsed.
func (m *manPage) blocks(all []comment.Block) {
	for _, b := range all {
		switch b := b.(type) {
		case *comment.Heading:
			m.line(".SS " + escape(plain(b.Text)))
		case *comment.Paragraph:
			m.line(".PP")
			m.text(plain(b.Text))
		case *comment.Code:
			m.code(b.Text)
		case *comment.List:
			for _, item := range b.Items {
				m.line(".IP \\(bu 2")
				for _, inner := range item.Content {
					if p, ok := inner.(*comment.Paragraph); ok {
						m.text(plain(p.Text))
					}
				}
			}
		}
	}
}

// plain is text without links and emphasis.
func plain(all []comment.Text) string {
	var b strings.Builder
	for _, t := range all {
		switch t := t.(type) {
		case comment.Plain:
			b.WriteString(string(t))
		case comment.Italic:
			b.WriteString(string(t))
		case *comment.Link:
			b.WriteString(plain(t.Text))
		case *comment.DocLink:
			b.WriteString(plain(t.Text))
		}
	}
	return b.String()
}
