#pragma once
// stdout and stderr that may fail (a full disk, a reader that left, a stream closed by the caller) without
// the job failing with them: a job of hours still writes its files, and then the program says what was not
// printed and exits with an error. fmt::print would throw in the middle of the job, or the exit's own flush
// would fail unnoticed.

namespace bilevel::cli {

// First of all in main(): replaces stdout and stderr.
void guard_standard_streams();

// Last in main(): flushes, and turns the exit code of a success into that of a failure where something could
// not be printed. A closed pipe (`bilevel list | head -1`) gets 141, as if by SIGPIPE, and no message.
int flush_standard_output(int exit_code);

}  // namespace bilevel::cli
