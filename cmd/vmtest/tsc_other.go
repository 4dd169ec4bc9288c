//go:build !amd64

package main

// clockParameter is empty: only amd64 machines have the counter of their guests.
func clockParameter() string { return "" }
