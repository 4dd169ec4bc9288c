// Package ir is the typed tree: what a program means once its names are resolved and its types agree. The checker builds it, the
// planner divides it between the kernel and user space, and both engines run it. value.go alone defines what each operator means.
package ir
