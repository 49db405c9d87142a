// Mutants measures how well the tests of a package notice a wrong line of code. It changes the
// production code of the package in one place ("<" to "<=", "==" to "!=", "+" to "-"), runs the
// package's own tests, and does the same for each such place. A changed program is a mutant. A
// mutant that fails the tests is killed. A mutant that passes them survives, and so does a mutant
// in a line that no test runs.
//
// The command fails if a mutant survives that the package's list of survivors does not have. With
// -base, it also fails if the list has an entry whose mutant no longer exists. From the top folder
// of the repository:
//
//	go run ./test/mutants core/pipeline                 # all mutants of a package
//	go run ./test/mutants -update core/pipeline         # also rewrites its list of survivors
//	go run ./test/mutants -file denied.go core/pipeline # only mutants of one file
//	go run ./test/mutants -base main                    # only mutants in changed lines
//	go run ./test/mutants -base main -time 60s          # as .ci/run calls it
//
// With -base and without packages, the command checks the packages that have a list and whose
// production files differ from the commit. So a change to a package without a list never fails. To
// have a package checked, add its list with -update, and a reason to each entry.
//
// A busy machine is no reason to fail, either:
//
//   - After -time, the command stops and prints how many mutants it did not test. These do not fail
//     the command.
//   - A mutant whose tests take too long is killed.
//   - With -base, the command runs all tests once more against each survivor that is not listed, in
//     a program that has only this mutant. Only a mutant that passes them fails the command. A
//     survivor for which no time is left is printed with the words "may survive".
//
// # The mutants
//
//	ARITHMETIC_BASE        + - * / %        becomes  - + / * *
//	CONDITIONALS_BOUNDARY  < <= > >=        becomes  <= < >= >
//	CONDITIONALS_NEGATION  == != < <= > >=  becomes  != == >= > <= <
//	INCREMENT_DECREMENT    ++ --            becomes  -- ++
//	INVERT_NEGATIVES       -x               becomes  +x
//
// These are the default mutants of go-gremlins. It builds each mutant and runs all tests against
// it, which takes hours for package policies.
//
// # The list of survivors
//
// The list of the package core/pipeline is survivors/core/pipeline.toml. An entry has these keys:
//
//   - file, func, mutant and line name the mutant. The line's text has the changed token in double
//     braces. The entry stays valid when lines above it come or go.
//   - why says why the mutant changes nothing that a user of the package could notice. An entry
//     without a reason does not count as listed.
//   - text = true marks a mutant in code that only composes a text for people, or that takes no
//     part in deciding, recording and forwarding. The rate of killed mutants leaves such a mutant
//     out.
//
// With -update, the command removes the entries of mutants that are killed or gone, and adds new
// survivors without a reason. With -file, it leaves the entries of other files as they are. Prefer
// a test to an entry. Write the test against the exported functions of the package.
//
// # How the tests run
//
// The command builds one program that has all mutants of a package. In that program, a switch
// replaces each operator, and an environment variable selects the switch that is on (rewriter). At
// first, the command runs each test alone while all switches are off. So it learns how long the
// test takes and which switches it reaches. Then it runs, for each mutant, the tests that reach the
// mutant's switch. The fastest tests run first, and the first failure ends the run.
//
// A switch cannot replace an operator of a constant. Such a mutant has a program of its own, and
// all tests run against it. A mutant that does not compile is left out.
//
// The tests run with -short. A mutant is killed if its tests take more than five times as long as
// without the mutant and five seconds more, or five times as much processor time and two seconds
// more. So is a mutant that uses more than 2 GB of memory. If a test fails while all switches are
// off, the command prints the failure and leaves the test out. A test of the number of allocations
// may fail so.
package main
