package probes

// A class of objects is a number by which programs tell them apart.
type class uint32

// walked is the outcome of a walk.
type walked struct {
	// whole are the classes of which each object was met that is there.
	whole map[class]bool
	// notes say what was not reached, and why.
	notes []string
}

// maxSeeds bounds the memory for the objects that are known: about 75 MiB.
const maxSeeds = 1 << 18
