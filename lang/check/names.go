package check

import "trace/lang/agg"

// builtins are the values that are no fields.
var builtins = []string{"cpid", "elapsed", "kstack", "probe", "ustack"}

// aggregationNames are in the order of the alphabet.
func aggregationNames() []string {
	var names []string
	for _, how := range agg.All() {
		names = append(names, how.Name)
	}
	return names
}

// aggregationUsage is how an aggregation is written, "" if there is none of that name.
func aggregationUsage(name string) string {
	how, _ := agg.Lookup(name)
	return how.Usage
}

func isStack(word string) bool { return word == "kstack" || word == "ustack" }

// Functions that are statements; has_key and len have no signature, as they take maps.
var (
	statements = []string{"clear", "delete", "exit", "print", "printf", "time", "zero"}
	onMaps     = []string{"has_key", "len"}
)
