// Package event is the vocabulary of events: which kinds of events there are, of which fields, and how an event is read from a record.
//
//	Probe       one kind of event: its name, and its fields
//	Field       one value of it, whose Type has a kind, a width, a unit and the names of its values
//	Layout      which fields a record has, and where
//	Decode      record -> Event
//	Event.Get   the value of a field
//
// It knows nothing of where the events come from: package probes makes them of the kernel, package recording of files.
package event
