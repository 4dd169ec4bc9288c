//go:build linux

package verbs

// A refusal is why something is not followed. What does not fit is never guessed.
type refusal struct {
	reason string // counted by it
	text   string
}

func (r *refusal) Error() string { return r.text }

// The reasons, as [Finder.Refused] counts them.
const (
	narrow  = "programs of 32 bits"
	unfound = "devices without a context"
	compat  = "contexts of an old ABI"
	outside = "functions outside of code"
	foreign = "QPs at other addresses"
	// unproven and inside are what [Finder.prove] does not let pass.
	unproven = "functions in files that are not followed"
	inside   = "addresses at which no function begins"
	silent   = "processes that do not answer"
	crowded  = "processes with too many files or mappings"
)
