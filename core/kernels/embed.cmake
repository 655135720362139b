# Writes the text of FILES into OUTPUT as C++ raw string literals, one a file.
set(parts "")
set(count 0)
foreach(file IN LISTS FILES)
  file(READ "${file}" text)
  string(REPLACE "#pragma once\n" "" text "${text}")
  string(APPEND parts "R\"LGTEXT(${text})LGTEXT\",\n")
  math(EXPR count "${count} + 1")
endforeach()
file(WRITE "${OUTPUT}" "// Generated from core/kernels. Do not edit.\nnamespace linkgauge {\n"
  "extern const char* const kKernelText[];\nextern const unsigned kKernelTextParts;\n"
  "const char* const kKernelText[] = {\n${parts}};\nconst unsigned kKernelTextParts = ${count};\n}  // namespace linkgauge\n")
