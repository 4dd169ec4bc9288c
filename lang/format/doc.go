// Package format writes single values: for people, as print of the language does, and as JSON for programs.
//
// A value is nil if it is absent, int64, uint64, bool or string as [event.Event.Get] returns it, the Frames of a stack, or a []any
// with the elements of a tuple or a list.
package format
