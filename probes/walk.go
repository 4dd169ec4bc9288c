package probes

// A class of objects is a number by which programs distinguish them.
type class uint32

// walked is the result of a walk.
type walked struct {
	// whole are the classes whose existing objects were all met.
	whole map[class]bool
	// notes describe what was not reached, and why.
	notes []string
}

// maxSeeds bounds the memory for known objects: about 75 MiB.
const maxSeeds = 1 << 18
