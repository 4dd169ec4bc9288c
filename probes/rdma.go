package probes

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
)

// The walk over the objects of RDMA devices is `rdma res show`: dumps over RDMA netlink (include/uapi/rdma/rdma_netlink.h,
// drivers/infiniband/core/nldev.c), for which the kernel calls rdma_restrack_get for each entry of a table. The dumps themselves are not
// read: programs see each object, including those that are hidden from this process.

// Commands, RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, enum rdma_nldev_command).
const (
	nldevSysGet     netlink.HeaderType = 5<<10 + 6
	nldevResGet     netlink.HeaderType = 5<<10 + 9
	nldevResQPGet   netlink.HeaderType = 5<<10 + 10
	nldevResCMIDGet netlink.HeaderType = 5<<10 + 11
	nldevResCQGet   netlink.HeaderType = 5<<10 + 12
	nldevResMRGet   netlink.HeaderType = 5<<10 + 13
	nldevResPDGet   netlink.HeaderType = 5<<10 + 14
	nldevStatGet    netlink.HeaderType = 5<<10 + 17
	nldevResCtxGet  netlink.HeaderType = 5<<10 + 22
	nldevResSRQGet  netlink.HeaderType = 5<<10 + 23
)

// Attributes, enum rdma_nldev_attr.
const (
	nldevDevIndex      = 1
	nldevDevName       = 2
	nldevSummary       = 15
	nldevSummaryEntry  = 16
	nldevSummaryName   = 17
	nldevSummaryCurr   = 18
	nldevResQP         = 19
	nldevResPD         = 46
	nldevResPDEntry    = 47
	nldevResCtxn       = 64
	nldevNetnsMode     = 66
	nldevStatRes       = 75
	nldevDriverDetails = 97
)

// rdmaTables are the tables that kernels list, under the names in the summary of a device. 5.10 does not list contexts, but the PDs lead to
// them, so these come first. Counters are in no summary. Classes are enum rdma_restrack_type.
var rdmaTables = []struct {
	kind    string
	class   class
	command netlink.HeaderType
}{
	{"pd", 0, nldevResPDGet},
	{"ctx", 5, nldevResCtxGet},
	{"cq", 1, nldevResCQGet},
	{kindQP, 2, nldevResQPGet},
	{"cm_id", 3, nldevResCMIDGet},
	{"mr", 4, nldevResMRGet},
	{"srq", 7, nldevResSRQGet},
	{"counter", 6, nldevStatGet},
}

// kindQP is the name of QPs in a summary.
const kindQP = "qp"

// rdmaDevice is a device, with the number of its objects by kind, as `rdma res` shows it.
type rdmaDevice struct {
	index  uint32
	name   string
	counts []rdmaCount
}

type rdmaCount struct {
	kind string
	n    uint64
}

// netlinkRDMA is NETLINK_RDMA of include/uapi/linux/netlink.h.
const netlinkRDMA = 20

// dialRDMA opens a connection to RDMA netlink that ends with ctx.
func dialRDMA(ctx context.Context) (*netlink.Conn, func(), error) {
	// A dump comes in parts of at most 32 KiB (netlink_dump), if there is room for them. Fewer parts mean fewer skipped objects.
	conn, err := netlink.Dial(netlinkRDMA, &netlink.Config{MessageBufferSize: 1 << 16})
	if err != nil {
		return nil, nil, fmt.Errorf("RDMA netlink: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	return conn, func() {
		stop()
		conn.Close()
	}, nil
}

// rdmaObjects returns about how many objects the RDMA devices have; 0 if it is unknown, in which case the walk fails with the reason.
func rdmaObjects() uint32 { return countKinds(func(string) bool { return true }) }

// rdmaQPs returns how many QPs the list of all QPs may meet, with those that come meanwhile.
func rdmaQPs() uint32 { return 2*countKinds(func(kind string) bool { return kind == kindQP }) + 1024 }

func countKinds(counted func(kind string) bool) uint32 {
	conn, closeConn, err := dialRDMA(context.Background())
	if err != nil {
		return 0
	}
	defer closeConn()
	devices, err := rdmaDevices(conn)
	if err != nil {
		return 0
	}
	var total uint64
	for _, d := range devices {
		for _, c := range d.counts {
			if counted(c.kind) {
				total += min(c.n, maxSeeds)
			}
		}
	}
	return uint32(min(total, maxSeeds))
}

// countRDMA counts the objects of all devices, unless some may be hidden.
func countRDMA(ctx context.Context) (map[class]int, error) {
	conn, closeConn, err := dialRDMA(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	if note, err := rdmaNamespaces(conn); err != nil || note != "" {
		return nil, err
	}
	devices, err := rdmaDevices(conn)
	if err != nil {
		return nil, err
	}
	return countsOf(devices), nil
}

// countsOf adds up the counts of devices. Classes that a summary lacks, and no kernel lists all, are unknown.
func countsOf(devices []rdmaDevice) map[class]int {
	counts := make(map[class]int)
	for _, d := range devices {
		for _, c := range d.counts {
			for _, table := range rdmaTables {
				if table.kind == c.kind {
					counts[table.class] += int(c.n)
				}
			}
		}
	}
	return counts
}

// walkRDMA lists all objects of all devices.
func walkRDMA(ctx context.Context, gone func() (uint32, error)) (w walked, err error) {
	conn, closeConn, err := dialRDMA(ctx)
	if err != nil {
		return w, err
	}
	defer closeConn()
	hidden, err := rdmaNamespaces(conn)
	if err != nil {
		return w, err
	}
	devices, err := rdmaDevices(conn)
	if err != nil {
		return w, err
	}
	w.whole = make(map[class]bool)
	for _, table := range rdmaTables {
		w.whole[table.class] = true
	}
	for _, d := range devices {
		if err := d.walk(conn, gone, &w); err != nil {
			return w, err
		}
	}
	if hidden != "" {
		w.notes = append([]string{hidden}, w.notes...)
		w.whole = nil
	}
	return w, nil
}

// rdmaNamespaces reports whether devices may be hidden from this process.
func rdmaNamespaces(conn *netlink.Conn) (note string, err error) {
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: nldevSysGet, Flags: netlink.Request}})
	if err != nil {
		return "", fmt.Errorf("rdma system: %w", err)
	}
	for _, m := range replies {
		shared, err := decodeShared(m.Data)
		if err != nil {
			return "", fmt.Errorf("rdma system: %w", err)
		}
		if !shared {
			note = "objects from before on devices of other network namespaces are not counted (rdma system: netns exclusive)"
		}
	}
	return note, nil
}

// rdmaDevices lists the devices with their counts.
func rdmaDevices(conn *netlink.Conn) ([]rdmaDevice, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint8(nldevDriverDetails, 1)
	details, err := ae.Encode()
	if err != nil {
		return nil, err
	}
	replies, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: nldevResGet, Flags: netlink.Request | netlink.Dump}, Data: details})
	if err != nil {
		return nil, fmt.Errorf("rdma res: %w", err)
	}
	var devices []rdmaDevice
	for _, m := range replies {
		d, err := decodeDevice(m.Data)
		if err != nil {
			return nil, fmt.Errorf("rdma res: %w", err)
		}
		devices = append(devices, d)
	}
	return devices, nil
}

// walk lists all objects of a device.
func (d rdmaDevice) walk(conn *netlink.Conn, gone func() (uint32, error), w *walked) error {
	reached := make(map[string]uint64) // objects, by kind; all of them, for kinds that are listed
	for _, table := range rdmaTables {
		parts, whole, err := d.list(conn, table.command, gone)
		if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EOPNOTSUPP) {
			if table.kind == "pd" {
				return nil // every kernel lists these: the device has gone, with its objects
			}
			w.whole[table.class] = false
			continue
		}
		if err != nil {
			return d.unlisted(table.kind, err)
		}
		if !whole {
			w.whole[table.class] = false
			w.notes = append(w.notes, fmt.Sprintf("%s of %s go so fast that some from before may not be counted",
				strings.ToUpper(table.kind), d.name))
		}
		reached[table.kind] = math.MaxUint64
		if table.kind == "pd" {
			contexts, err := contextsOf(parts)
			if err != nil {
				return d.unlisted(table.kind, err)
			}
			reached["ctx"] = contexts
		}
	}
	for _, c := range d.counts {
		if c.n > reached[c.kind] {
			w.notes = append(w.notes, fmt.Sprintf("%d %s of %s from before are not counted, because this kernel does not list them",
				c.n-reached[c.kind], strings.ToUpper(c.kind), d.name))
		}
	}
	return nil
}

func (d rdmaDevice) unlisted(kind string, err error) error {
	return fmt.Errorf("rdma res show %s of %s: %w", kind, d.name, err)
}

// queryQPs lists the QPs of all devices: for each, the kernel asks the driver for its attributes.
func queryQPs(ctx context.Context) (notes []string, err error) {
	conn, closeConn, err := dialRDMA(ctx)
	if err != nil {
		return nil, err
	}
	defer closeConn()
	hidden, err := rdmaNamespaces(conn)
	if err != nil {
		return nil, err
	}
	if hidden != "" {
		notes = append(notes, hidden)
	}
	devices, err := rdmaDevices(conn)
	if err != nil {
		return notes, err
	}
	for _, d := range devices {
		note, err := d.queryQPs(conn)
		if err != nil {
			return notes, d.unlisted(kindQP, err)
		}
		if note != "" {
			notes = append(notes, note)
		}
	}
	return notes, nil
}

// maxQueries is how often the QPs of a device are listed while some are missing.
const maxQueries = 3

// queryQPs lists the QPs of a device. The list lacks some if others go meanwhile: then it is listed again.
func (d rdmaDevice) queryQPs(conn *netlink.Conn) (note string, err error) {
	var missing int
	for range maxQueries {
		parts, _, err := d.list(conn, nldevResQPGet, func() (uint32, error) { return 0, nil })
		if errors.Is(err, syscall.EINVAL) {
			return "", nil // the device has gone, with its QPs
		}
		if err != nil {
			return "", err
		}
		listed, err := entriesOf(parts, nldevResQP)
		if err != nil {
			return "", err
		}
		devices, err := rdmaDevices(conn)
		if err != nil {
			return "", err
		}
		missing = -listed
		for _, now := range devices {
			if now.index == d.index {
				missing += now.count(kindQP)
			}
		}
		if missing <= 0 {
			return "", nil
		}
	}
	return fmt.Sprintf("%d QP of %s from before are not reported, because the kernel does not list them", missing, d.name), nil
}

// count returns how many objects of a kind the device has.
func (d rdmaDevice) count(kind string) (n int) {
	for _, c := range d.counts {
		if c.kind == kind {
			n += int(min(c.n, math.MaxInt32))
		}
	}
	return n
}

// maxLists is how often a table is listed while objects keep going.
const maxLists = 10

// list lists a table, and reports whether it listed all of it. The kernel finds the beginning of the next part by the number of entries
// that it has passed: if one of them has gone, it skips another. Then the table is listed again; objects that were met are known.
func (d rdmaDevice) list(conn *netlink.Conn, command netlink.HeaderType, gone func() (uint32, error)) (parts []netlink.Message, whole bool, err error) {
	ae := netlink.NewAttributeEncoder()
	ae.Uint32(nldevDevIndex, d.index)
	if command == nldevStatGet {
		ae.Uint32(nldevStatRes, nldevResQP)
	} else {
		ae.Uint8(nldevDriverDetails, 1)
	}
	attributes, err := ae.Encode()
	if err != nil {
		return nil, false, err
	}
	for range maxLists {
		before, err := gone()
		if err != nil {
			return nil, false, err
		}
		parts, err = conn.Execute(netlink.Message{Header: netlink.Header{Type: command, Flags: netlink.Request | netlink.Dump}, Data: attributes})
		if err != nil {
			return nil, false, err
		}
		after, err := gone()
		if err != nil || len(parts) <= 1 || after == before {
			return parts, true, err
		}
	}
	return parts, false, nil
}

// decodeDevice reads the summary of a device.
func decodeDevice(data []byte) (d rdmaDevice, err error) {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return d, err
	}
	for ad.Next() {
		switch ad.Type() {
		case nldevDevIndex:
			d.index = ad.Uint32()
		case nldevDevName:
			d.name = ad.String()
		case nldevSummary:
			ad.Nested(func(entries *netlink.AttributeDecoder) error {
				for entries.Next() {
					if entries.Type() == nldevSummaryEntry {
						entries.Nested(d.decodeCount)
					}
				}
				return nil
			})
		}
	}
	return d, ad.Err()
}

func (d *rdmaDevice) decodeCount(ad *netlink.AttributeDecoder) error {
	var c rdmaCount
	for ad.Next() {
		switch ad.Type() {
		case nldevSummaryName:
			c.kind = ad.String()
		case nldevSummaryCurr:
			c.n = ad.Uint64()
		}
	}
	d.counts = append(d.counts, c)
	return nil
}

// decodeShared reads whether every network namespace sees all devices. Kernels without this attribute always share them.
func decodeShared(data []byte) (bool, error) {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return false, err
	}
	shared := true
	for ad.Next() {
		if ad.Type() == nldevNetnsMode {
			shared = ad.Uint8() != 0
		}
	}
	return shared, ad.Err()
}

// entriesOf counts the entries of a listed table.
func entriesOf(parts []netlink.Message, table uint16) (n int, err error) {
	for _, m := range parts {
		ad, err := netlink.NewAttributeDecoder(m.Data)
		if err != nil {
			return 0, err
		}
		for ad.Next() {
			if ad.Type() == table {
				ad.Nested(func(entries *netlink.AttributeDecoder) error {
					n += entries.Len()
					return nil
				})
			}
		}
		if err := ad.Err(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// contextsOf counts the contexts to which the listed PDs belong.
func contextsOf(parts []netlink.Message) (uint64, error) {
	contexts := make(map[uint32]bool)
	for _, m := range parts {
		if err := decodeContexts(m.Data, contexts); err != nil {
			return 0, err
		}
	}
	return uint64(len(contexts)), nil
}

func decodeContexts(data []byte, contexts map[uint32]bool) error {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return err
	}
	entry := func(ad *netlink.AttributeDecoder) error {
		for ad.Next() {
			if ad.Type() == nldevResCtxn {
				contexts[ad.Uint32()] = true
			}
		}
		return nil
	}
	for ad.Next() {
		if ad.Type() == nldevResPD {
			ad.Nested(func(entries *netlink.AttributeDecoder) error {
				for entries.Next() {
					if entries.Type() == nldevResPDEntry {
						entries.Nested(entry)
					}
				}
				return nil
			})
		}
	}
	return ad.Err()
}

// rdmaCMIDs is the number of CM_IDs whose devices are remembered.
func rdmaCMIDs() uint32 { return 1 << 16 }
