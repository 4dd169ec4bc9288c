package lang

import (
	"fmt"
	"strings"
	"sync"

	"trace/probes/event"
)

// errnoNames are the error numbers of Linux under their C names. The first name of a number is the one that is printed.
var errnoNames = sync.OnceValue(func() *event.Enum {
	e := &event.Enum{Name: "errno"}
	add := func(name string, v int64) { e.Names, e.Values = append(e.Names, name), append(e.Values, v) }
	add("EOPNOTSUPP", 95) // as the kernel's sources say it; the table below says ENOTSUP
	for i, name := range strings.Fields(linuxErrnos) {
		if name != "-" {
			add(name, 1+int64(i))
		}
	}
	add("EWOULDBLOCK", 11)
	add("EDEADLOCK", 35)
	// Those of include/linux/errno.h, which functions inside the kernel return but programs never see.
	for i, name := range strings.Fields(`ERESTARTSYS ERESTARTNOINTR ERESTARTNOHAND ENOIOCTLCMD ERESTART_RESTARTBLOCK EPROBE_DEFER
		EOPENSTALE ENOPARAM - EBADHANDLE ENOTSYNC EBADCOOKIE ENOTSUPP ETOOSMALL ESERVERFAULT EBADTYPE EJUKEBOX EIOCBQUEUED
		ERECALLCONFLICT ENOGRACE`) {
		if name != "-" {
			add(name, 512+int64(i))
		}
	}
	return e
})

// linuxErrnos are the error numbers of Linux from 1 on (include/uapi/asm-generic/errno-base.h, errno.h), wherever a recording is read.
const linuxErrnos = `EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT ENOTBLK EBUSY EEXIST EXDEV ENODEV
	ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK
	ENOSYS ENOTEMPTY ELOOP - ENOMSG EIDRM ECHRNG EL2NSYNC EL3HLT EL3RST ELNRNG EUNATCH ENOCSI EL2HLT EBADE EBADR EXFULL ENOANO EBADRQC
	EBADSLT - EBFONT ENOSTR ENODATA ETIME ENOSR ENONET ENOPKG EREMOTE ENOLINK EADV ESRMNT ECOMM EPROTO EMULTIHOP EDOTDOT EBADMSG
	EOVERFLOW ENOTUNIQ EBADFD EREMCHG ELIBACC ELIBBAD ELIBSCN ELIBMAX ELIBEXEC EILSEQ ERESTART ESTRPIPE EUSERS ENOTSOCK EDESTADDRREQ
	EMSGSIZE EPROTOTYPE ENOPROTOOPT EPROTONOSUPPORT ESOCKTNOSUPPORT ENOTSUP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE EADDRNOTAVAIL
	ENETDOWN ENETUNREACH ENETRESET ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ESHUTDOWN ETOOMANYREFS ETIMEDOUT ECONNREFUSED
	EHOSTDOWN EHOSTUNREACH EALREADY EINPROGRESS ESTALE EFSCORRUPTED ENOTNAM ENAVAIL EISNAM EREMOTEIO EDQUOT ENOMEDIUM EMEDIUMTYPE
	ECANCELED ENOKEY EKEYEXPIRED EKEYREVOKED EKEYREJECTED EOWNERDEAD ENOTRECOVERABLE ERFKILL EHWPOISON`

// enumOf returns the names that stand for values of a type, or nil.
func enumOf(t *event.Type) *event.Enum {
	switch {
	case t == nil:
		return nil
	case t.Unit == event.Errno:
		return errnoNames()
	}
	return t.Enum
}

// enumerate writes some of many things.
func enumerate[T any](all []T) string {
	const most = 12
	var b strings.Builder
	for i, x := range all {
		if i == most {
			fmt.Fprintf(&b, " and %d more", len(all)-most)
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprint(&b, x)
	}
	return b.String()
}

// didYouMean suggests one of names for a misspelt word, or returns "".
func didYouMean(word string, names []string) string {
	if name := Nearest(word, names); name != "" {
		return fmt.Sprintf("did you mean %q?", name)
	}
	return ""
}

// Nearest returns the name closest to word: the same but for case, its last part (state for qp.state), or at most about a
// third of the letters away. It returns "" if none is.
func Nearest(word string, names []string) string {
	best, limit := "", (len(word)+2)/3+1
	for _, name := range names {
		d := distance(strings.ToLower(word), strings.ToLower(name))
		if strings.HasSuffix(name, "."+word) {
			d = 0
		}
		if d < limit {
			best, limit = name, d
		}
	}
	return best
}

// distance is the number of letters to insert, delete, replace or swap with their neighbour to get from a to b.
func distance(a, b string) int {
	// Three rows of the table d[i][j], the distance of a[:i] and b[:j].
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, row = last, row, before
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return row[len(b)]
}

// builtins are the values that are no fields.
var builtins = []string{"cpid", "elapsed", "kstack", "probe", "ustack"}
