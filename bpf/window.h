/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Programs that are attached a part of the time, in windows, because they are traps in the traced program (probes/burst.go). Attaching and
 * detaching takes a while, and not all programs and processes have the traps at once. So Go opens a window when all are attached, and closes
 * it before it detaches the first: what is between is exactly known, and the same for all probes and processes. What happens outside is no
 * event, and nothing is joined with it: what programs keep for that is kept in windows only, and Go removes it before the next one. UNSEEN
 * counts what may have begun outside of the window, which is no loss.
 */

/* Whether there are windows. Go sets it. */
const volatile __u8 in_windows SEC(".rodata");

/* Whether a window is open. Go sets it. */
volatile __u8 window_open SEC(".data");

#undef SEES
#define SEES (!in_windows || window_open)
