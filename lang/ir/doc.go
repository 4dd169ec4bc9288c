// Package ir is the typed tree: what a program means once its names are resolved and its types agree. The checker makes it, the planner
// divides it between the kernel and user space, and both engines follow it: what every operator means stands in value.go alone.
package ir
