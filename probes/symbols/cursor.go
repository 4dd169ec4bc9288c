package symbols

import (
	"encoding/binary"
	"errors"
)

// This file reads the numbers of DWARF.

// Forms of attributes: section 7.5.6 of DWARF 5, and GNU's own.
const (
	formAddr, formBlock2, formBlock4, formData2, formData4, formData8, formString, formBlock, formBlock1, formData1 = 1, 3, 4, 5, 6, 7, 8, 9, 10, 11
	formFlag, formSdata, formStrp, formUdata, formRefAddr, formRef1, formRef2, formRef4, formRef8, formRefUdata     = 12, 13, 14, 15, 16, 17, 18, 19, 20, 21
	formIndirect, formSecOffset, formExprloc, formFlagPresent, formStrx, formAddrx, formRefSup4, formStrpSup        = 22, 23, 24, 25, 26, 27, 28, 29
	formData16, formLineStrp, formRefSig8, formImplicitConst, formLoclistx, formRnglistx, formRefSup8               = 30, 31, 32, 33, 34, 35, 36
	formStrx1, formStrx4, formAddrx1, formAddrx4                                                                    = 37, 40, 41, 44
	formGNUAddrIndex, formGNUStrIndex, formGNURefAlt, formGNUStrpAlt                                                = 0x1f01, 0x1f02, 0x1f20, 0x1f21
)

var errShort = errors.New("it ends too early")

// cursor reads numbers.
type cursor struct {
	b     []byte
	order binary.ByteOrder
	bad   bool // b was too short
	// of the unit
	addrSize int
	wide     bool // of 64-bit DWARF
	version  uint16
}

func (c *cursor) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.bad, c.b = true, nil
		return make([]byte, min(n, 8))
	}
	b := c.b[:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) uint(size int) uint64 {
	switch b := c.bytes(uint64(size)); size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(c.order.Uint16(b))
	case 4:
		return uint64(c.order.Uint32(b))
	case 8:
		return c.order.Uint64(b)
	}
	c.bad = true
	return 0
}

// uleb reads a LEB128 number.
func (c *cursor) uleb() (x uint64) {
	for shift := 0; ; shift += 7 {
		b := c.bytes(1)[0]
		if shift < 64 {
			x |= uint64(b&0x7f) << shift
		}
		if b < 0x80 {
			return x
		}
	}
}

func (c *cursor) sleb() int64 {
	var x int64
	for shift := 0; ; shift += 7 {
		b := c.bytes(1)[0]
		if shift < 64 {
			x |= int64(b&0x7f) << shift
		}
		if b < 0x80 {
			if b&0x40 != 0 && shift+7 < 64 {
				x |= -1 << (shift + 7)
			}
			return x
		}
	}
}

// offset reads an offset in a section.
func (c *cursor) offset() uint64 {
	if c.wide {
		return c.uint(8)
	}
	return c.uint(4)
}

// length reads the length of a unit or a table, and whether it has 64-bit offsets.
func (c *cursor) length() uint64 {
	n := c.uint(4)
	if c.wide = n == 0xffffffff; c.wide {
		return c.uint(8)
	}
	return n
}

// text skips a text, and returns it.
func (c *cursor) text() []byte {
	for i, x := range c.b {
		if x == 0 {
			return c.bytes(uint64(i) + 1)[:i]
		}
	}
	c.bad, c.b = true, nil
	return nil
}

// value reads the value of an attribute, 0 if it is no number.
func (c *cursor) value(form uint64, implicit int64) uint64 {
	switch form {
	case formAddr:
		return c.uint(c.addrSize)
	case formData1, formRef1, formFlag, formStrx1, formAddrx1:
		return c.uint(1)
	case formData2, formRef2, formStrx1 + 1, formAddrx1 + 1:
		return c.uint(2)
	case formStrx1 + 2, formAddrx1 + 2:
		return c.uint(2) | c.uint(1)<<16
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return c.uint(4)
	case formData8, formRef8, formRefSig8, formRefSup8:
		return c.uint(8)
	case formData16:
		c.bytes(16)
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx, formGNUAddrIndex, formGNUStrIndex:
		return c.uleb()
	case formSdata:
		return uint64(c.sleb())
	case formStrp, formLineStrp, formSecOffset, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return c.offset()
	case formRefAddr:
		if c.version == 2 {
			return c.uint(c.addrSize)
		}
		return c.offset()
	case formString:
		c.text()
	case formBlock1:
		c.bytes(c.uint(1))
	case formBlock2:
		c.bytes(c.uint(2))
	case formBlock4:
		c.bytes(c.uint(4))
	case formBlock, formExprloc:
		c.bytes(c.uleb())
	case formFlagPresent:
		return 1
	case formImplicitConst:
		return uint64(implicit)
	case formIndirect:
		if form = c.uleb(); form != formIndirect && form != formImplicitConst {
			return c.value(form, 0)
		}
		c.bad = true
	default:
		c.bad = true
	}
	return 0
}
