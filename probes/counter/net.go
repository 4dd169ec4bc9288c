//go:build linux

package counter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Kinds of counters of network devices, enum net_source of bpf/net.bpf.c.
const (
	driverKind uint32 = iota
	deviceKind
)

// deviceCounters are the members of struct rtnl_link_stats64 (include/uapi/linux/if_link.h). /sys/class/net/DEV/statistics has them under these
// names, without the last one.
var deviceCounters = strings.Fields(`rx_packets tx_packets rx_bytes tx_bytes rx_errors tx_errors rx_dropped tx_dropped multicast collisions
	rx_length_errors rx_over_errors rx_crc_errors rx_frame_errors rx_fifo_errors rx_missed_errors
	tx_aborted_errors tx_carrier_errors tx_fifo_errors tx_heartbeat_errors tx_window_errors
	rx_compressed tx_compressed rx_nohandler rx_otherhost_dropped`)

// network has the counters of the network devices of this process's network namespace.
type network struct {
	links  *netlink.Conn
	driver ethtool
}

// Network opens the counters of network devices.
func Network() (Source, error) {
	links, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return nil, err
	}
	driver, err := openEthtool()
	if err != nil {
		return nil, errors.Join(err, links.Close())
	}
	return &network{links, driver}, nil
}

func (n *network) Close() error { return errors.Join(n.links.Close(), n.driver.Close()) }

// Read reads what any device has, and then what each driver has: drivers may ask the hardware, which takes longer.
func (n *network) Read(each func(Set)) error {
	all, err := n.devices()
	if err != nil {
		return fmt.Errorf("list the network devices: %w", err)
	}
	for _, s := range all {
		each(s)
	}
	for _, s := range all {
		counters, err := n.driver.read(s.Name)
		if counters != nil || err != nil {
			each(Set{Key: Key{Device: s.Device, Kind: driverKind}, Name: s.Name, At: now(), Counters: counters, Err: err})
		}
	}
	return nil
}

// devices returns what each device has.
func (n *network) devices() (all []Set, err error) {
	request := netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg)}
	replies, err := whole(func() ([]netlink.Message, error) { return n.links.Execute(request) })
	if err != nil {
		return nil, err
	}
	at := now()
	for _, m := range replies {
		s, err := deviceSet(m.Data)
		if err != nil {
			return nil, err
		}
		s.At = at
		all = append(all, s)
	}
	return all, nil
}

// whole repeats a list that changed meanwhile: it may lack a device.
func whole(list func() ([]netlink.Message, error)) ([]netlink.Message, error) {
	const tries = 5
	for range tries {
		replies, err := list()
		changed := func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 }
		if err != nil || !slices.ContainsFunc(replies, changed) {
			return replies, err
		}
	}
	return nil, errors.New("the list changes all the time")
}

// deviceSet decodes a struct ifinfomsg and its attributes.
func deviceSet(message []byte) (s Set, err error) {
	if len(message) < unix.SizeofIfInfomsg {
		return s, fmt.Errorf("a device of %d bytes", len(message))
	}
	s.Device, s.Kind = uint64(binary.NativeEndian.Uint32(message[4:])), deviceKind
	attributes, err := netlink.NewAttributeDecoder(message[unix.SizeofIfInfomsg:])
	if err != nil {
		return s, err
	}
	for attributes.Next() {
		switch attributes.Type() {
		case unix.IFLA_IFNAME:
			s.Name = attributes.String()
		case unix.IFLA_STATS64:
			values := attributes.Bytes()
			for i, name := range deviceCounters[:min(len(deviceCounters), len(values)/8)] {
				s.Counters = append(s.Counters, Counter{name, binary.NativeEndian.Uint64(values[8*i:])})
			}
		}
	}
	return s, attributes.Err()
}
