// Package probes is the catalog of what can be traced and the way to attach it: which events exist, with which fields, which of them this
// host offers and why not the others, how they are attached, and how their records are read.
//
// The catalog is read from the BTF of the embedded objects (package bpf): an event is a C struct, its members are the fields, a
// typedef gives a member its meaning and unit, an enum its names, a declaration tag its documentation.
//
//	Load        -> Catalog            no kernel needed: the same on every host
//	Detect      -> Host               what the catalog finds in this kernel (package kernel): BTF, symbols, modules, capabilities
//	Host.Status -> Status             which variant of a probe would be used here, and why not the others
//	Attach      -> Session            programs loaded with the generated code of each request, attached
//	Session.Add, Session.Remove       requests that come and go while the session runs
//	Session.Read -> event.Event       records of the generated code, by their layout, in the order of the ring buffer
//	Session.Losses                    everything that is missing from what was read
//
// A program is a BPF program here. What the user writes arrives as the [Code] of a [Request].
//
// Where programs run is a place of the catalog (tracepoint, functions, clock). How they are attached there is a way, each in a file of its
// own. A new one must implement the interfaces place and way.
package probes
