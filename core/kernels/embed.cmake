# Writes the texts of HEADERS and of FILES into OUTPUT as C++ raw string literals, one a file.
function(literals name files)
  set(parts "")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    string(REPLACE "#pragma once\n" "" text "${text}")
    string(REGEX REPLACE "#include \"[a-z/]*datatypes.h\"\n" "" text "${text}")  # the first of HEADERS
    string(APPEND parts "R\"LGTEXT(${text})LGTEXT\",\n")
  endforeach()
  list(LENGTH files count)
  file(APPEND "${OUTPUT}" "extern const char* const ${name}[];\nextern const unsigned ${name}Count;\n"
    "const char* const ${name}[] = {\n${parts}};\nconst unsigned ${name}Count = ${count};\n")
endfunction()

file(WRITE "${OUTPUT}" "// Generated from core/kernels. Do not edit.\nnamespace linkgauge {\n")
literals(kKernelHeaders "${HEADERS}")
literals(kKernelTexts "${FILES}")
literals(kLinkedTexts "${LINKED}")
file(APPEND "${OUTPUT}" "}  // namespace linkgauge\n")
