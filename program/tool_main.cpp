/// The program `troupe-NAME`. The build defines TROUPE_TOOL as each NAME.

#include <troupe/program/command_line.hpp>

#define TROUPE_TEXT_OF(name) #name
#define TROUPE_TEXT(name) TROUPE_TEXT_OF(name)
#define TROUPE_JOINED_OF(left, right) left##right
#define TROUPE_JOINED(left, right) TROUPE_JOINED_OF(left, right)

int main(int argc, char** argv) {
  return troupe::program::run_tool(TROUPE_TEXT(TROUPE_TOOL), troupe::program::TROUPE_JOINED(add_, TROUPE_TOOL), argc,
                                   argv);
}
