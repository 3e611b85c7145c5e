# Stands for a CAF of a line that no troupe is built against.
add_library(CAF::core INTERFACE IMPORTED)
