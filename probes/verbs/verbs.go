// Package verbs finds the functions of RDMA providers that programs call by libibverbs.
//
// ibv_post_send, ibv_poll_cq and their like are inline calls through pointers in the context of an open device, into a library without
// symbols. The contexts are public ABI: they are found in the memory of the processes that have a device open, and each pointer leads to
// a place in a file. A uprobe there sees all processes that map the file, in any container.
package verbs
