"""Common first and last names in plain letters, for lists to be sorted. No name occurs twice in the two lists together.

The module does not depend on tasks. `is_held_out` selects the names that no training task has.
"""

from slimrl.environments.held_out import split_by_hash

_FIRST = """
Aaron Abigail Adele Agnes Alan Albert Alexandra Alfred Alice Alicia Alison Amanda Amber Amelia Amy Ana Andrea Andreas
Andrew Angela Anita Anna Anton Antonia April Arlene Arnold Arthur Astrid Audrey Barbara Beatrice Belinda Benjamin
Bernard Bertha Beth Betty Beverly Bianca Boris Brenda Brian Bridget Bruno Caleb Camilla Carla Carlos Carmen Caroline
Catherine Cecilia Cedric Charles Charlotte Christina Christopher Clara Claudia Clement Colin Connor Constance Cora
Cornelia Cynthia Daisy Damian Daniel Daphne Darren David Deborah Denise Derek Diana Dominic Donald Dora Doris Dorothy
Dylan Edgar Edith Edmund Eduardo Edwin Eileen Elena Eli Elias Elizabeth Ella Ellen Elsa Emil Emily Emma Enrique Eric
Erica Esther Ethan Eugene Eva Evelyn Fabian Felicia Felix Fernando Fiona Flora Florence Frances Francesca Frank
Frederick Gabriel Gabriela Gemma Geoffrey Georgia Gerald Gerard Gilbert Giles Gina Gloria Grace Gregory Greta Gustav
Hannah Harold Harriet Hazel Hector Heidi Helen Henrietta Henry Herbert Hilda Hope Horace Howard Hugo Ian Ida Igor
Imogen Ines Ingrid Irene Iris Isaac Isabel Ivan Jacob Janet Jasmine Jason Jeremy Jessica Joan Joanna Joel Johanna
Jonas Jonathan Josephine Joshua Joyce Judith Julia Julian Karen Karl Katrina Keith Kenneth Kevin Kirsten Kurt Lara
Laura Lawrence Leah Lena Leo Leonard Lillian Linda Lionel Lisa Lorenzo Louisa Lucas Lucy Luis Lydia Mabel Magnus
Malcolm Marcus Margaret Maria Marina Mario Martha Matilda Matthew Maurice Max Maya Megan Melissa Michael Mildred Miles
Miranda Miriam Monica Nadia Naomi Natalie Nathan Nicholas Nicola Nina Noah Nora Norman Octavia Olga Oliver Olivia
Oscar Otto Pamela Patricia Paul Paula Pauline Pedro Penelope Peter Philip Phoebe Quentin Rachel Ralph Ramona Raymond
Rebecca Regina Ricardo Rita Robert Roderick Roger Roland Rosa Rosemary Rowena Rufus Ruth Sabrina Samantha Samuel
Sandra Sarah Sebastian Selma Sergio Sheila Silvia Simone Sofia Sonia Stella Stephen Susan Sylvester Tamara Terence
Teresa Theodore Timothy Tobias Trevor Ulrich Una Ursula Valerie Vanessa Vera Victor Victoria Vincent Viola Virginia
Vivian Walter Wanda Wendy Wilhelm Winifred Xavier Yolanda Yvonne Zachary Zelda Zoe
"""

_LAST = """
Abbott Adams Aldridge Allen Anderson Archer Armstrong Arnett Ashby Atkins Austen Bailey Baker Baldwin Ballard Barker
Barnes Barrett Barton Bateman Baxter Becker Bell Bennett Benson Berger Bishop Blackwell Blake Bolton Bond Booth Bowen
Boyd Bradley Brandt Brennan Bridges Briggs Brooks Brown Bryant Buckley Burgess Burke Burton Butler Byrd Byrne Caldwell
Campbell Cannon Carlson Carpenter Carr Carver Castillo Chambers Chandler Chapman Clarke Clayton Coleman Collins Conway
Cooper Copeland Cortez Costello Crawford Cross Cunningham Curtis Dalton Daniels Davenport Davies Dawson Delgado
Dempsey Dickens Dixon Donovan Douglas Doyle Drake Duncan Dunn Duran Eaton Edwards Elliott Ellison Emerson English
Erickson Espinoza Evans Everett Farley Farrell Faulkner Ferguson Figueroa Finch Fischer Fisher Fletcher Flores Forster
Fowler Franklin Fraser Freeman Friedman Frost Fuller Gallagher Garcia Gardner Garner Gibson Gilmore Glover Goodwin
Graham Graves Greene Griffin Guerrero Gunther Gutierrez Haas Hale Hamilton Hammond Hansen Harding Hardy Harper
Hartmann Harvey Hawkins Hayes Henderson Hensley Hernandez Higgins Hobbs Hoffman Holland Holmes Hopkins Horton Houston
Huber Hudson Hughes Hunter Hurst Ibarra Ingram Irving Jackson Jacobs Jansen Jefferson Jenkins Jensen Jimenez Johnson
Johnston Jones Keller Kennedy Kimball Kirby Klein Knight Koch Kowalski Kramer Lambert Lancaster Lang Larsen Lawson
Leach Lehmann Leonhardt Lindsay Little Livingston Logan Lopez Lowe Lucero Lynch Mackay Maldonado Mann Manning Marsh
Marshall Martinez Mason Mathews Maxwell Mayer Meadows Mendoza Mercer Meyer Middleton Miller Monroe Montgomery Moody
Morales Moreno Morrison Mueller Murphy Murray Myers Navarro Nelson Newman Nguyen Nicholson Nixon Nolan Norton Novak
Nunez Oakley Ochoa Olsen Ortega Osborne Padilla Palmer Parker Patel Patterson Payne Pearson Peterson Petrov Phelps
Pierce Pittman Porter Potter Powell Preston Proctor Quinn Ramirez Ramsey Randall Rasmussen Reeves Reynolds Rhodes
Richter Riley Rivera Roberts Robinson Rodriguez Rojas Romero Rosales Rossi Rowland Russell Ryan Salazar Sanders
Sandoval Saunders Sawyer Schmidt Schneider Schultz Sharp Shelton Shepherd Silva Simpson Singh Slater Smith Snyder
Solomon Sparks Spencer Stafford Stanton Steele Stewart Stokes Stone Strickland Sullivan Summers Sutton Svensson
Swanson Tanaka Thompson Thornton Torres Townsend Tucker Turner Underwood Upton Valdez Vance Vargas Vaughn Velasquez
Wagner Walker Wallace Walsh Walters Warren Watkins Watson Weaver Weber Webster Weiss Wheeler Whitaker White Wiggins
Wilkins Williams Wilson Winters Wolfe Woodward Wright Yamada Yates Young Zamora Ziegler Zimmerman
"""
FIRST_NAMES, LAST_NAMES = tuple(_FIRST.split()), tuple(_LAST.split())


def is_held_out(name: str) -> bool:
    """Return True if a name is used in test lists only. The result depends only on the name."""
    return split_by_hash(name) == "test"
