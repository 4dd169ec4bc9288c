// Package lang gives programs their meaning: it checks them against the catalog of probes, runs them on events and writes
// the output.
//
// # The language
//
//	program   = expr [ block ] | { param | let | clause }      items are separated by newlines or ";"
//	param     = "param" [ letter "," ] name "=" literal [ string ]   a flag of the program, read as $name
//	let       = "let" map "=" ( "lru" | "hash" ) "(" entries ")"
//	clause    = probe { "," probe } [ "/" expr "/" ] [ block ]
//	probe     = group ":" name                                 both may hold * and the name ? too
//	          | "begin" | "end" | "interval:" duration | "profile:" rate    also "i:" and "p:"
//	block     = "{" [ statement { sep statement } ] "}"        sep = newline | ";"
//	statement = map ( "=" | "+=" | "-=" | … ) expr | map "=" aggregation | map ( "++" | "--" )
//	          | variable ( "=" | "+=" | … ) expr | variable ( "++" | "--" )
//	          | "if" expr block [ "else" ( block | if ) ]
//	          | "for" "(" variable ":" ( map [ "," "by" "=" string ] | expr ".." expr ) ")" block
//	          | function "(" … ")" | "return"
//	map       = "@" [ name ] [ "[" expr { "," expr } "]" ]
//	variable  = "$" name
//
// A clause runs for each event of its probes for which the expression holds, or for every event if it has none. Without a block it
// prints the event. An event that passes two clauses is printed twice. Clauses run in the order of the text.
//
//	qp.state == RTR
//	nvme:complete_rq / latency > 1ms && opcode in [read, write] /
//	ib:modify_qp, ib:destroy_qp { @[probe, qp.num] = count() }
//
// A program that is a bare expression, perhaps with a block, names no probe. It means the probes whose events have all fields of the
// expression and of the block. At least one of the fields must not be common to all events, the probes must be of one group, and a
// group of a driver (mlx5) has to be named; otherwise it is an error that lists the candidates.
//
// A wildcard, nvme:* or *:*, takes the probes whose events have all that the clause reads; it is an error if none has. A probe that is
// named has to have it. *:* leaves out profile:hz, which takes a rate.
//
// begin runs before the probes are attached, end after the last event and before the maps are printed, interval:1s every second
// (also interval:$name, with a param, and interval:s:$name with one that is a plain number of seconds). They have no event and so no
// fields; nsecs is the time there. BEGIN, END, interval:s:1, i:ms:100 and interval:hz:10 are understood. profile:99hz samples the CPUs, if
// the catalog has the probe profile:hz; p:hz:99, profile:ms:10, profile:$name and profile:hz:$name are understood. The samples of a
// recording have their rate, and profile:* takes them. A program of begin and end alone ends by itself.
//
// # Params
//
// param lat = 10ms "the least latency" becomes the flag --lat of the program, and $lat a literal in it. The default tells the type:
// a whole number, duration, size, string, true or false; a value has to be of it. A duration needs its unit, a size may leave it out,
// a string stands without quotes. A param cannot be assigned to. param i, interval = 1s has the short flag -i, too.
//
// Beside an enum a param that holds a string is one of its names: param op = "" and opcode == $op let --op=read choose reads. The
// empty string is no name, and equals none.
//
// What params and other literals decide is decided when the program is compiled: a condition that does not matter then reads no field,
// and a clause whose predicate is false attaches no probe. So / $op == "" || opcode == $op / costs nothing without --op, and
// / $driver == "mlx5" / wants no mlx5 driver unless it is asked for.
//
// # Expressions
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
// (c ? qp.state : qp.old_state) == RTR. The other operand may be a map or a variable that holds such values. Where a word is both a
// field and a name, it is an error; event.word is the field and enum.word, like qp_state.RTR, the name. Beside an error number
// (errno_t) the names are those of errno: ret == -EINVAL. Flags are numbers whose bits have names: mr.access & REMOTE_WRITE,
// mr.access == LOCAL_WRITE|REMOTE_READ; what &, |, ^ and ~ make of flags of one kind are such flags again. Beside a GID or an IP
// address a string is an address: dgid == "fe80::1"; "10.0.0.1" is short for "::ffff:10.0.0.1".
//
// Beside a cgroup a string is a path, as in /proc/PID/cgroup: cgroup == "/system.slice", cgroup in ["/a", "/b"]. One that is there when
// the program is compiled is the number of that cgroup, and stays it; one that is not there is compared with the path of each event's
// cgroup, in user space. startsWith, endsWith, contains and matches take the path of a cgroup for a string.
//
// Three values are no fields: probe is the name of the probe (begin, end, interval:1s), elapsed the time since the program began, and cpid
// the process of the command that -c starts: syscall:enter / pid == cpid /. It is there when begin clauses run, and waits until all probes
// are attached. A filter of the command line, like --comm, is as if each predicate on events began with it.
//
// kstack and ustack are the stacks of the kernel and of the process at the event, innermost frame first, kstack(5) and ustack(5) at most five
// frames of them (1 to 127, a literal). They are captured in the kernel, and only where a program uses them. == and != compare stacks, !=
// nil asks for one; stacks of processes are equal only if they are of one process. Two stacks that differ only below the fifth frame are
// one key as kstack(5). kstack begins with what is traced, or its caller: frames of tracing itself are not in it. A stack without frames is absent: the
// process' in a thread of the kernel, the kernel's where profile meets a process. An event in an interrupt, like nvme:complete_rq, has the stacks of what was interrupted. The kernel finds the frames of a process by frame
// pointers, so code that is compiled without them hides its callers.
//
// (uint8)x is x modulo 2^8, as unsigned; int8 to int64 and uint8 to uint64 are the types, int is int64. Numbers, names of values and
// booleans, which are 0 and 1, can be cast.
//
// (a, b) is a tuple, and x.0 and x.1 are its elements. It stands as the value of a map or a variable, as a key, and under ==, != and in.
// An element is no tuple itself.
//
// # Functions
//
// On strings they are those of expr: upper lower trim(s[, characters]) trimPrefix trimSuffix replace(s, old, new) repeat(s, n)
// indexOf lastIndexOf hasPrefix hasSuffix len, split(s, separator[, n]), which makes a list, and join(list[, separator]). On lists,
// [a, b] or what a function makes: any all none one filter map, with # as the element (any(split(ctrl, "n"), # == "1")), first last
// len. int("12") is absent for a string that is no number, and so are first and last of an empty list. string(x) is the text of x
// as it is printed, strftime("%H:%M:%S", nsecs) the time of day, ntop(x) the text of an address: of a GID, or of a number with the
// four bytes of an IPv4 address as they are in memory.
//
// Functions run in user space, but for has_key and what is said of maps below. A map in the kernel keeps 64 bytes of a string that a
// function makes.
//
// # Variables
//
// $x = expr in a block is seen to the end of that block. An assignment in a block within changes the variable of the block around.
// A variable has one type in its clause, signed if -= or -- is used on it, and is gone with the event. Reading one that is not set is
// an error.
//
// # Maps
//
// A map belongs to the whole program, and so do its types: all keys have as many elements, of the same sorts, and all values are of
// one sort. Numbers are signed if one of them is; names and units stay if all values have the same, literals aside. Maps are printed
// when the program ends.
//
//	@x = expr             sets a value; @x[tid] = nsecs the value of a key, @x[a, b] that of a key of two elements
//	@x[op = opcode] = …   gives an element of the key a name, for heads of tables and JSON: otherwise it is that of the field, or the
//	                      text of the expression. It is the same wherever the map is written
//	@x += expr            adds a number in one step, as do -= ++ --; a map with -= or -- is signed
//	@x *= expr            and other operators: @x = @x * (expr)
//	@x[tid]               the value; 0, "", false if there is no such key
//	has_key(@x, tid)      is there such a key? also has_key(@x, a, b) and has_key(@x, (a, b))
//	len(@x)               how many keys there are
//	delete(@x, tid)       also delete(@x[tid]), and delete(@x) without keys
//	clear(@x)             deletes all keys
//	zero(@x)              sets all values to 0
//	print(@x)             prints the map; print(@x, 10) the ten largest values, print(@x, 10, 1000) those divided by 1000,
//	                      print(@x, by = "key") in the order of the keys; print(@x[tid]) the value of one key
//
// let @x = lru(10000) lets the oldest keys give way when there are 10000; hash(10000) counts what finds no room, as does a map
// without a let.
//
// The clauses of an interval see maps as they are at one moment: what events do later, while these clauses run, belongs to the time after
// them. So print(@x) and then clear(@x) shows each event once, however long it takes and whatever @x holds, and so do zero, delete and @x = 0.
// What is cleared and stays empty is not printed at the end: clear(@x) in an end clause keeps @x silent.
//
// In the kernel there are two of each map that intervals empty, and they take turns. If its keys stay, as with zero, what is counted of
// new keys for which there is no room is known only when it is moved to user space: of aggregations that keep no count, and of scalars,
// each such key is one update in the report of what was lost.
//
// A map holds values, or one aggregation with the same arguments everywhere:
//
//	@ = count()               how many
//	@ = sum(x)  avg(x)  min(x)  max(x)
//	@ = stats(x)              count, average and sum
//	@ = hist(x)               a histogram of powers of two; hist(x, k) has 2^k buckets in each, k up to 5; with min = 20us it begins
//	                          there, with shift = 10 the lowest ten bits do not count
//	@ = lhist(x, 0, 100, 5)   a histogram from 0 to 100 in steps of 5, at most 1000
//	@ = quantile(x, 50, 99.9) percentiles, at most 3.1 % off
//	@ = topk(x, n)            the n values of x, which may be a tuple, that come most; topk(x, n, w) those with the largest sum of w
//	@ = rate()  rate(x)       how many, or how much, a second: since all probes are attached, or since it was printed or emptied
//	@ = gauge(x)              the sum of signed changes; it tells how much there is if the probe begins with what was there before,
//	                          as rdma:resource { @[dev, type] = gauge(delta) } does
//
// topk keeps a map by key and x: @[ctrl] = topk((comm, opcode), 10, bytes) has the columns ctrl, comm and opcode, and shows the first ten
// of each ctrl, n being up to 4096. As long as there is room for all x in the map (--map-size, or let @ = hash(n)) each number is exact.
// After that, new ones go to a smaller table of their CPU, in sets of eight, where the least gives way. What takes its place may have come
// as often before, so such a row shows bounds, like 119..123. They always hold, and in each set they are apart by an eighth of what came
// there at most; in user space, where the map itself gives way, by what came divided by its room. What is in no row came at most
// as often as the last one that is shown, or as what gave way. In JSON value is the upper bound and error how much less it may be, in CSV
// there is a column error. w is a number that is 0 or more. No single key can be asked for: print(@) and clear(@) are for all.
//
// Otherwise x is a number, or a boolean as 0 or 1; of the names of an enum there are only min and max, and of their numbers, like (uint64)opcode,
// all. count, sum, avg, min, max, rate and gauge can be read as numbers: @x > 100, @x + @y. What
// is printed has the unit of x; min and max keep its names.
//
// # Statements
//
// if and else choose by a condition, return ends the clause for this event, exit() the program; exit(3) makes 3 its exit status. That may be
// any number, of which the low eight bits count, as in Unix, or a boolean; an absent one is 1. Of several the last one holds, so an end
// clause may decide. printf("%s %d\n", comm, pid) has the
// conversions of C and more (see format.go), print(expr) prints one value, time("%H:%M:%S\n") the time of day. Formats are literals.
// Control characters of strings are written as escapes, like \x1b, without --raw; those of formats and literals ("\033[31m") as they are.
//
// for ($kv : @x) runs over the keys of a map: $kv.0 is the key, a tuple if it has several elements, and $kv.1 the value; print($kv)
// prints the entry. The keys come in their order, or with for ($kv : @x, by = "value") in that of the values. for ($i : 0..5) runs from 0 to 4. A loop stands only in begin, end and interval clauses, as the events of the
// kernel do not wait for it.
//
// # What a number is
//
// A field knows its width and sign, and every operation is on 64 bits, two's complement. It is unsigned only if all its
// operands are unsigned or literals that are not negative. Division and remainder truncate toward zero; x / 0 is 0 and
// x % 0 is x; the smallest number divided by -1 is itself. Shifts use the low six bits of their count, and >> of a signed
// number keeps the sign. A negative power is 1 divided by the positive one, so mostly 0.
//
// Names of an enum are equal or not, and have no order; (uint64)opcode > 1 compares a number. Comparisons are mathematical: -1 is less than
// every unsigned number, and a kernel address is greater than 0. A number as
// a condition holds if it is not 0. Either branch of ?: and either side of ?? may be signed; then the result is.
//
// A sum or difference of durations is a duration, also with a literal that has no unit, and one of sizes a size; other arithmetic
// makes plain numbers. So is nsecs - @start[tid], if that was set to nsecs. & | ^ ~ keep numbers hexadecimal.
//
// Operations on literals are done when the program is compiled. Their result is a literal again. A negation is exact, and a
// difference that is negative is signed: 5 - 10 is -5.
//
// Strings are byte strings: len, indexOf, "%.2s" and the functions count bytes, whatever they are, upper and lower change the letters of
// ASCII, and trim takes white space of ASCII. Only matches takes a string for UTF-8. Strings end before the first NUL byte, so a
// literal with one is an error.
//
// # Absent values
//
// A field may be absent from an event: no latency, as the start was not seen. An operator with an absent operand is absent.
// In the place of a condition absent is false, under ! too: neither latency > 1ms nor !(latency > 1ms) holds then. && and ||
// are Kleene's (false && absent is false, true || absent is true), and x in [a, b] is x == a || x == b; a range with an absent bound is
// absent. x ?? y is y where x is absent, and x == nil tests for it.
//
// An aggregation skips an absent argument, and a map is not set to an absent value; both are counted. An absent element of a key is
// a key of its own, printed as a dash, and an absent element of a tuple stays one. A variable may be absent. A loop from or to an
// absent number does not run.
//
// # Output
//
// In text, enums are names, flags like LOCAL_WRITE|REMOTE_READ, durations are like 1.2ms, with three digits, and from a minute on in whole
// seconds, like 1h2m5s. Sizes are exact where four digits are enough, like 4KiB or 1500B, otherwise rounded, which a point shows: 5.0GiB.
// Error numbers are like -EINVAL, GIDs are addresses, cgroups are paths (or their numbers, where no path is known), and absent is a dash.
// A value without a name is unknown(0x1d); an NVMe opcode or status has its class with it, as in unknown(admin:0xc1). string(x), %s and %t
// have the same text.
//
// The line of an event leaves out fields that are absent, those that the event marks as verbose (raw codes, tid, cgroup, ...), details that
// are 0 or false, and values that are marked as usual. [Columns] chooses otherwise, as -v and --fields do.
//
// In JSON, numbers of every kind are plain, dotted fields are members of an object, a cgroup is
// {"id":…,"path":…}, and absent is null. Enums are names there too: their numbers would have to be
// looked up in the headers of the kernel, and differ from one version to another. A value without a name is its number there.
//
// A stack is printed as in bpftrace, a line for each frame: the function and how many bytes the address is behind its beginning, with the
// module of the kernel, or the place in the source if the file has line numbers. In JSON it is a list of such strings. Functions of processes
// have the names of the files that they map, of debug files by build id or .gnu_debuglink, of .gnu_debugdata and of /tmp/perf-PID.map, through
// the process' own mount namespace; files are opened as soon as they are mapped, so that names are there when process and file are gone.
// What is not known is an address with the name of what is mapped there. A stack for which there is no room is a key all the same, prints as
// lost, and is counted; --map-size makes room.
//
// # Where it runs
//
// What the kernel can do exactly runs there: predicates, keys, values, assignments, aggregations, if. The rest runs in user space, on
// records that hold just what it needs, and gives the same answer: matches, contains, endsWith, functions, powers, tuples in variables.
// A clause is on one side, but for its predicate, whose conjuncts the kernel takes as far as it can, and for what it prints. A map is
// on one side, too, so all clauses that share one are. In user space are the maps that an event reads or sets in a way that is not one
// step in the kernel, where other CPUs do the same meanwhile:
//
//   - a clause both reads and assigns to @x, other than with += -= ++ --, and the key has no tid
//   - print(@x), clear(@x), zero(@x), len(@x), or the value of an aggregation, in a clause on events
//   - an aggregation that begin, end or interval clauses add to, too
//   - a scalar that an interval clause reads and empties, if events read it or delete keys, or both set it and add to it; and any lru
//     map that is emptied so
//
// If exit() is decided in user space, everything is. --explain tells all of this for a program.
//
// # For those who know bpftrace
//
// Names of fields stand alone, without args. Comparisons do not convert signs, and division by zero is 0 and no fault. ==
// binds looser than & and |, so flags & 1 == 1 means (flags & 1) == 1. Probes have a group and a name and no type before
// them. Strings are values: comm == "fio", without str() and strncmp(). retval is ret. There are no pointers, casts to structs,
// symbols, while loops and commands of the shell. The value of an aggregation can be read without
// a cast. A number is unsigned if all that makes it is; bpftrace's are signed.
//
// # How it works
//
// lang.go has the passes in their order. [trace/lang/syntax] parses the text. [trace/lang/check] turns each clause into a typed tree, of
// [trace/lang/ir], for each probe of the clause, as one name may be of another type in another probe. [trace/lang/plan] divides the
// typed tree between the kernel and user space, and [trace/lang/codegen] makes BPF instructions of the one part. [trace/lang/exec] runs
// the other part, whose expressions are lowered to expr's virtual machine, and keeps the maps. What every operator means stands in ir,
// which both engines and the folding of literals follow. What an aggregation does is in [trace/lang/agg], what maps hold in
// [trace/lang/result]. [trace/lang/output] writes it all.
package lang
