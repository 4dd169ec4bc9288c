// package format is how one value is written: for people, as the language's print does, and as JSON for programs.
//
// A value is nil where it is absent, int64, uint64, bool or string as [event.Event.Get] returns it, Frames of a stack, or a []any, which
// holds the elements of a tuple or a list.
package format
