package main

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// maxConnections is how many connections there are: with their buffers, they need some MiB.
const maxConnections = 256

// crowd bounds the connections. If there is no room for a new one, the one is closed that has asked nothing for the longest time. So whoever keeps
// many open, and asks nothing, keeps nobody out.
type crowd struct {
	mu sync.Mutex
	// all has the connections, with their elements of idle, nil while they ask. idle has the one first that asks nothing for the longest time.
	all  map[net.Conn]*list.Element
	idle list.List
}

func newCrowd() *crowd { return &crowd{all: map[net.Conn]*list.Element{}} }

// changed is told of each change of a connection: it is [http.Server.ConnState].
func (c *crowd) changed(conn net.Conn, to http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.all[conn]; at != nil {
		c.idle.Remove(at)
	}
	switch to {
	case http.StateNew, http.StateIdle:
		c.all[conn] = c.idle.PushBack(conn)
	case http.StateActive:
		c.all[conn] = nil
	default:
		delete(c.all, conn)
	}
	if to == http.StateNew && len(c.all) > maxConnections {
		longest := c.idle.Remove(c.idle.Front()).(net.Conn)
		delete(c.all, longest)
		go longest.Close() // with TLS, it writes
	}
}
