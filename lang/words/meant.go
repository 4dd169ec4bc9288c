package words

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"trace/docs"
	"trace/lang/syntax"
	"trace/probes"
	"trace/probes/event"
	"trace/scripts"
)

// Meant returns advice about a word in the place of a program that is no field of any probe. exact is about what has that name, here or in
// programs like trace, and near about flags, commands, scripts and topics that are called so or similarly; both may be "". commands and flags are the
// command line's.
func Meant(word string, commands, flags []string) (exact, near string) {
	if slices.Contains(commands, word) {
		return "", "" // behind a --, where a program is wanted
	}
	if exact = named(word); exact != "" {
		return exact, ""
	}
	return "", similar(word, commands, flags)
}

// Instead returns advice about the first of several words where a program was expected as one argument; "" if it may begin a program, or is a
// script.
func Instead(word string, commands, flags []string) string {
	catalog, err := probes.Load()
	if _, isScript := scripts.Find(word); err != nil || isScript || !loneWord.MatchString(word) || namedFields(word, catalog.Probes()) != nil {
		return ""
	}
	return cmp.Or(Meant(word, commands, flags))
}

// loneWord matches what may be the name of a command or of a script.
var loneWord = regexp.MustCompile(`^[A-Za-z_][\w-]*$`)

// named returns advice about what has the name.
func named(word string) string {
	switch word {
	case "list", "ls", "probes":
		return "trace -l lists the probes, and trace scripts the scripts"
	case "run", "exec":
		return "leave it out: trace PROGRAM, or trace SCRIPT"
	case "replay", "report":
		return "trace -r FILE PROGRAM runs a program on a recording"
	}
	if script, found := scripts.Find(word); found {
		return fmt.Sprintf("it is a script: trace %s runs it, and with --record FILE records its events", script.Name)
	}
	if help := groupNamed(word); help != "" {
		return help
	}
	if slices.Contains(docs.Names(), word) {
		return "trace help " + word + " explains it"
	}
	return ""
}

// groupNamed returns how to use the group of probes with that name.
func groupNamed(word string) string {
	catalog, err := probes.Load()
	if err != nil {
		return "" // the program's own error has the reason
	}
	all := catalog.Probes()
	i := slices.IndexFunc(all, func(p *event.Probe) bool { return strings.EqualFold(p.Group, word) })
	if i < 0 {
		return ""
	}
	word = all[i].Group
	help := fmt.Sprintf("%s is a group of probes: '%[1]s:*' prints their events, and trace -l '%[1]s:*' lists them", word)
	if all[i].Sampled {
		help = fmt.Sprintf("%s is a group of probes: '%[1]s:99hz' prints their events", word)
	}
	if found := scriptsWith(word + "_"); len(found) > 0 {
		help += "; scripts are " + syntax.Enumerate(found)
	}
	return help
}

func groupNames() (all []string) {
	catalog, err := probes.Load()
	if err != nil {
		return nil
	}
	for _, p := range catalog.Probes() {
		if !slices.Contains(all, p.Group) {
			all = append(all, p.Group)
		}
	}
	return all
}

// similar returns the question whether something that is called similarly was meant.
func similar(word string, commands, flags []string) string {
	if slices.Contains(flags, word) {
		return "it is a flag: trace --" + word
	}
	const least = 3 // two letters are in too many names
	if found := scriptsWith(word); len(word) >= least && len(found) > 0 {
		return fmt.Sprintf("did you mean \"%s\"?", strings.Join(found, `" or "`))
	}
	names := slices.Clone(commands)
	for _, s := range scripts.All() {
		names = append(names, s.Name)
	}
	if name := syntax.Nearest(strings.ReplaceAll(word, "-", "_"), names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	if name := syntax.Nearest(word, docs.Names()); name != "" {
		return fmt.Sprintf("did you mean %q?", "help "+name)
	}
	if name := syntax.Nearest(word, groupNames()); name != "" {
		return groupNamed(name)
	}
	return ""
}

// scriptsWith returns the names of the scripts with a part in their names.
func scriptsWith(part string) (names []string) {
	for _, s := range scripts.All() {
		if strings.Contains(s.Name, strings.ReplaceAll(part, "-", "_")) {
			names = append(names, s.Name)
		}
	}
	return names
}
