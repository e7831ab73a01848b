# Writes tables that Debian's R packages ship (r-cran-mlbench, r-cran-mass) as CSV files for bench/peers/tables.py:
#     Rscript bench/peers/r_tables.R FOLDER
# Columns of numbers first, the label or the target last; rows with missing values and constant columns are left out,
# columns of words become one column for each word.
arguments <- commandArgs(trailingOnly = TRUE)
if (length(arguments) != 1) stop("usage: Rscript bench/peers/r_tables.R FOLDER")
dir.create(arguments[1], showWarnings = FALSE, recursive = TRUE)

write_table <- function(name, table, label, drop = character()) {
  table <- na.omit(table[setdiff(names(table), drop)])
  y <- table[[label]]
  x <- table[setdiff(names(table), label)]
  x <- x[vapply(x, function(column) length(unique(column)) > 1, TRUE)]
  x <- as.data.frame(model.matrix(~ ., data = x)[, -1, drop = FALSE])
  x <- x[vapply(x, function(column) length(unique(column)) > 1, TRUE)]
  if (is.factor(y)) y <- gsub("[^A-Za-z0-9]", "_", as.character(y))
  write.csv(cbind(x, label = y), file.path(arguments[1], paste0(name, ".csv")), row.names = FALSE)
}
from <- function(package, name) {
  place <- new.env()
  data(list = name, package = package, envir = place)
  as.data.frame(place[[name]])
}
write_table("glass", from("mlbench", "Glass"), "Type")
write_table("ionosphere", from("mlbench", "Ionosphere"), "Class")
write_table("pima", from("mlbench", "PimaIndiansDiabetes"), "diabetes")
write_table("sonar", from("mlbench", "Sonar"), "Class")
write_table("vehicle", from("mlbench", "Vehicle"), "Class")
write_table("vowel", from("mlbench", "Vowel"), "Class", drop = "V1")
write_table("votes", from("mlbench", "HouseVotes84"), "Class")
write_table("crabs", from("MASS", "crabs"), "sp", drop = "index")
write_table("births", from("MASS", "birthwt"), "bwt", drop = "low")
write_table("boston", from("mlbench", "BostonHousing"), "medv")
write_table("servo", from("mlbench", "Servo"), "Class")
write_table("cars", from("MASS", "Cars93"), "Price", drop = c("Manufacturer", "Model", "Make", "Min.Price", "Max.Price"))
write_table("computers", from("MASS", "cpus"), "perf", drop = c("name", "estperf"))
write_table("crime", from("MASS", "UScrime"), "y")
