#pragma once
// An allocator for LibTorch's large CPU tensors: freed blocks are kept by size and used again. The C
// library's heap does badly with them: LibTorch asks for blocks aligned to 64 bytes, small objects settle
// between them, and the hole that a freed block left is then a few bytes too small for the next block of the
// same size; reverse mode was seen to occupy twice what it keeps. The C library's other way, a fresh mapping
// for every block, is exact but clears every page again, which triples the time of elementwise work. Here a
// block of a size that was freed before costs nothing, and the process holds what is live and at most half a
// gigabyte more.

namespace bilevel {

// Makes it the CPU allocator of this process, for good. The program does this when it starts; a program of
// your own may. Does nothing under AddressSanitizer, from which a cache would hide errors.
void use_block_cache();
// Gives back to the system what lies unused, as malloc_trim does for the heap.
void trim_block_cache();

}  // namespace bilevel
