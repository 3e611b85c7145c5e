# Runs PROGRAM with ARGUMENTS; fails unless it exits with STATUS and its output and its errors, one
# behind the other in either order, match EXPECTED.
# Kept apart: progress lines, which come on standard error after two seconds, would divide lines that belong together.
execute_process(COMMAND ${PROGRAM} ${ARGUMENTS} RESULT_VARIABLE status OUTPUT_VARIABLE printed ERROR_VARIABLE errors)
set(said "${printed}${errors}")
message("${said}")
if(NOT status STREQUAL STATUS)
  message(FATAL_ERROR "exit status ${status} instead of ${STATUS}")
endif()
if(NOT said MATCHES "${EXPECTED}" AND NOT "${errors}${printed}" MATCHES "${EXPECTED}")
  message(FATAL_ERROR "nothing said matches: ${EXPECTED}")
endif()
