// printf is declared by the compiler or the prelude.
#pragma once
