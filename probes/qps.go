//go:build linux

package probes

import (
	"context"
	"errors"
	"syscall"

	"github.com/mdlayher/netlink"

	"trace/probes/verbs"
)

// Attributes of a QP in a list, enum rdma_nldev_attr.
const (
	nldevResQPEntry = 20
	nldevResLQPN    = 21
	nldevResState   = 27
	nldevResPID     = 28
)

// stateRTS is IB_QPS_RTS of enum ib_qp_state.
const stateRTS = 3

// listQPs returns the QPs of processes, as rdma res show qp does.
func listQPs() (all []verbs.QP, err error) {
	conn, closeConn, err := dialRDMA(context.Background())
	if err != nil {
		return nil, err
	}
	defer closeConn()
	devices, err := rdmaDevices(conn)
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		parts, _, err := d.list(conn, nldevResQPGet, func() (uint32, error) { return 0, nil })
		if errors.Is(err, syscall.EINVAL) {
			continue // the device has gone
		}
		if err != nil {
			return nil, d.unlisted(kindQP, err)
		}
		for _, m := range parts {
			qps, err := decodeQPs(m.Data)
			if err != nil {
				return nil, d.unlisted(kindQP, err)
			}
			all = append(all, qps...)
		}
	}
	return all, nil
}

// decodeQPs reads the entries of a part of a list that belong to processes.
func decodeQPs(data []byte) (all []verbs.QP, err error) {
	ad, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return nil, err
	}
	entry := func(ad *netlink.AttributeDecoder) error {
		var qp verbs.QP
		for ad.Next() {
			switch ad.Type() {
			case nldevResLQPN:
				qp.Number = ad.Uint32()
			case nldevResState:
				qp.CanSend = ad.Uint8() == stateRTS
			case nldevResPID:
				qp.PID = int(ad.Uint32())
			}
		}
		if qp.PID != 0 {
			all = append(all, qp)
		}
		return nil
	}
	for ad.Next() {
		if ad.Type() != nldevResQP {
			continue
		}
		ad.Nested(func(entries *netlink.AttributeDecoder) error {
			for entries.Next() {
				if entries.Type() == nldevResQPEntry {
					entries.Nested(entry)
				}
			}
			return nil
		})
	}
	return all, ad.Err()
}
