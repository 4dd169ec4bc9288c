// Package lang gives programs their meaning: it checks them against the catalog of probes, runs them on events and writes
// the output.
//
// # The language as it stands
//
//	program   = expr | clause { sep clause }                   sep = newline | ";"
//	clause    = probe { "," probe } [ "/" expr "/" ]
//	probe     = group ":" name                                 both may hold * and the name ? too
//
// A clause prints each event of its probes for which the expression holds, or every event if it has none. An event that
// passes two clauses is printed twice.
//
//	qp.state == RTR
//	nvme:complete_rq / latency > 1ms && opcode in [read, write] /
//	ib:modify_qp, ib:destroy_qp
//
// A program that is a bare expression names no probe. It means the probes whose events have all its fields. At least one
// of the fields must not be common to all events, the probes must be of one group, and a group of a driver (mlx5) has to
// be named; otherwise it is an error that lists the candidates.
//
// Operators, loosest first:
//
//	?:
//	||  or
//	&&  and
//	not
//	==  !=
//	<  <=  >  >=  in  contains  startsWith  endsWith  matches     and these words with not before them
//	..                                                            a range, after in or in a list after in
//	|
//	^
//	&
//	<<  >>
//	+  -
//	*  /  %
//	-  !  ~                                                       before their operand
//	**
//	??
//
// A slash closes the predicate if no bracket and no ? is open and a newline, a probe, a brace, a comma, a semicolon or the
// end follows; else it divides. // begins a comment, and so does # at the start of a line.
//
// Literals are integers (42, 1_000, 0xff, 0o17, 0b101, up to 64 bits), durations in nanoseconds (850ns 10us 1.5ms 2s 1m 1h),
// sizes in bytes (512B 4KiB = 4096, 1MB = 1000000), strings ("…" and '…' with escapes, `…` without), true and false.
//
// A word that is no field is a name of the other operand's enum: qp.state == RTR, opcode in [read, write],
// (c ? qp.state : qp.old_state) == RTR. Where a word is both a field and a name, it is an error; event.word is the field
// and enum.word, like qp_state.RTR, the name. Beside an error number (errno_t) the names are those of errno: ret == -EINVAL.
// Beside a GID a string is an address: dgid == "fe80::1"; "10.0.0.1" is short for "::ffff:10.0.0.1".
//
// # What a number is
//
// A field knows its width and sign, and every operation is on 64 bits, two's complement. It is unsigned only if all its
// operands are unsigned or literals that are not negative. Division and remainder truncate toward zero; x / 0 is 0 and
// x % 0 is x; the smallest number divided by -1 is itself. Shifts use the low six bits of their count, and >> of a signed
// number keeps the sign. A negative power is 1 divided by the positive one, so mostly 0.
//
// Comparisons are mathematical: -1 is less than every unsigned number, and a kernel address is greater than 0. A number as
// a condition holds if it is not 0. Either branch of ?: and either side of ?? may be signed; then the result is.
//
// Operations on literals are done when the program is compiled. Their result is a literal again. A negation is exact, and a
// difference that is negative is signed: 5 - 10 is -5.
//
// Strings are byte strings. They end before the first NUL byte, so a literal with one is an error.
//
// # Absent values
//
// A field may be absent from an event: no latency, as the start was not seen. An operator with an absent operand is absent.
// In the place of a condition absent is false, under ! too: neither latency > 1ms nor !(latency > 1ms) holds then. && and ||
// are Kleene's (false && absent is false, true || absent is true), and x in [a, b] is x == a || x == b. x ?? y is y where
// x is absent, and x == nil tests for it.
//
// # Output
//
// In text, enums are names, durations are like 1.2ms, sizes like 4KiB, error numbers like -EINVAL, GIDs are addresses, and
// absent is a dash. The common fields tid, uid, cpu and cgroup are left out. In JSON, numbers of every kind are plain,
// dotted fields are members of an object, and absent is null. Enums are names there too: their numbers would have to be
// looked up in the headers of the kernel, and differ from one version to another. A value without a name is its number.
//
// # For those who know bpftrace
//
// Names of fields stand alone, without args. Comparisons do not convert signs, and division by zero is 0 and no fault. ==
// binds looser than & and |, so flags & 1 == 1 means (flags & 1) == 1. Probes have a group and a name and no type before
// them. There are no casts, no $variables, no @maps and no actions.
//
// # How it works
//
// [trace/lang/syntax] parses the text. The checker (check.go) turns a predicate into a typed tree for each probe of the
// clause, as one name may be of another type in another probe. The meaning of every operator is in value.go, which folds
// literals too. engine.go lowers a typed tree to expr's virtual machine.
package lang
