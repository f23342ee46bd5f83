# SPDX-License-Identifier: Apache-2.0
# Writes the file PAGE as a string of C++ into OUT.
file(READ ${PAGE} text)
file(WRITE ${OUT} "#include \"controller/http/site.h\"\n\nnamespace tandem::controller {\n\nconst char kPageHtml[] = R\"PAGE(${text})PAGE\";\n\n}  // namespace tandem::controller\n")
