// Package event is the vocabulary of events: the kinds of events, their fields, and how to read an event from a record.
//
//	Probe       one kind of event: its name, and its fields
//	Field       one value of it, whose Type has a kind, a width, a unit and the names of its values
//	Layout      which fields a record has, and where
//	Decode      record -> Event
//	Event.Get   the value of a field
//
// It does not depend on where the events come from: package probes makes them from the kernel, package recording from files.
package event
