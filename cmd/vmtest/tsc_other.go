//go:build !amd64

package main

// clockParameter is empty: only an amd64 machine has the counter that its guests take.
func clockParameter() string { return "" }
