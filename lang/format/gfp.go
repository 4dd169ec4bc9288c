package format

import (
	"strconv"
	"strings"
)

// gfpNames are the flags of the kernel's page allocator with their masks: include/trace/events/mmflags.h, and its order. A mask
// that comes first takes its bits from the ones after it.
var gfpNames = []struct {
	mask uint64
	name string
}{
	{gfpTranshugeLight | 1<<10, "GFP_TRANSHUGE"},
	{gfpTranshugeLight, "GFP_TRANSHUGE_LIGHT"},
	{gfpHighuserMovable, "GFP_HIGHUSER_MOVABLE"},
	{gfpUser | 1<<1, "GFP_HIGHUSER"},
	{gfpUser, "GFP_USER"},
	{gfpKernel | 1<<22, "GFP_KERNEL_ACCOUNT"},
	{gfpKernel, "GFP_KERNEL"},
	{gfpReclaim | 1<<6, "GFP_NOFS"},
	{1<<5 | 1<<11, "GFP_ATOMIC"},
	{gfpReclaim, "GFP_NOIO"},
	{1<<11 | 1<<13, "GFP_NOWAIT"},
	{1 << 0, "GFP_DMA"},
	{1 << 1, "__GFP_HIGHMEM"},
	{1 << 2, "GFP_DMA32"},
	{1 << 5, "__GFP_HIGH"},
	{1 << 6, "__GFP_IO"},
	{1 << 7, "__GFP_FS"},
	{1 << 8, "__GFP_ZERO"},
	{1 << 10, "__GFP_DIRECT_RECLAIM"},
	{1 << 11, "__GFP_KSWAPD_RECLAIM"},
	{1 << 12, "__GFP_WRITE"},
	{1 << 13, "__GFP_NOWARN"},
	{1 << 14, "__GFP_RETRY_MAYFAIL"},
	{1 << 15, "__GFP_NOFAIL"},
	{1 << 16, "__GFP_NORETRY"},
	{1 << 17, "__GFP_MEMALLOC"},
	{1 << 18, "__GFP_COMP"},
	{1 << 19, "__GFP_NOMEMALLOC"},
	{1 << 20, "__GFP_HARDWALL"},
	{1 << 21, "__GFP_THISNODE"},
	{1 << 22, "__GFP_ACCOUNT"},
	{1 << 23, "__GFP_ZEROTAGS"},
	{1 << 24, "__GFP_SKIP_ZERO"},
	{1 << 25, "__GFP_SKIP_KASAN"},
	{1 << 26, "__GFP_NO_OBJ_EXT"},
}

// Masks of several flags.
const (
	gfpReclaim         = 1<<10 | 1<<11
	gfpKernel          = gfpReclaim | 1<<6 | 1<<7
	gfpUser            = gfpKernel | 1<<20
	gfpHighuserMovable = gfpUser | 1<<1 | 1<<3 | 1<<25
	gfpTranshugeLight  = (gfpHighuserMovable | 1<<18 | 1<<19 | 1<<13) &^ gfpReclaim
)

// gfp returns the names of the flags in n, and the bits without a name as a number.
func gfp(n uint64) string {
	if n == 0 {
		return "0"
	}
	var names []string
	for _, flag := range gfpNames {
		if n&flag.mask == flag.mask {
			names = append(names, flag.name)
			n &^= flag.mask
		}
	}
	if n != 0 {
		names = append(names, "0x"+strconv.FormatUint(n, 16))
	}
	return strings.Join(names, "|")
}
