// Package console writes what happens in a run, and how it went, as lines for people (packages run and recording have the data).
package console
